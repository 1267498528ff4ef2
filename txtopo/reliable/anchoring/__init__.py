"""Anchoring: how tuples, acks and fails of at-least-once topologies travel between slots.

* **A slot** hosts the bolt tasks with *task mod slots = slot*, and the spout tasks with *number
  among all spout tasks mod slots = slot*, for as long as it lives, together with their memory.
  :class:`~txtopo.reliable.anchoring.slot.Slot` runs its bolts. It is used on one thread, and does
  not depend on its carrier. ``work(envelopes)`` runs the bolts on the envelopes that arrived, and
  on the envelopes that they send to their own slot. The results leave in *parts*, some of them
  while the bolts are still working. A part has envelopes and answers for slots, and a *report* for
  the driver.
* **Spouts.** Each spout task (:class:`~txtopo.reliable.anchoring.spout_task.ReliableSpoutTask`) has
  its own thread. :mod:`txtopo.reliable.spout_host` hosts the spout tasks of a slot, the list of
  their pending trees and the ackers of the slot. The slot of the spout and the acker of a tree
  follow from its root (:class:`~txtopo.reliable.acking.Ackers`).
* **An envelope** (:mod:`~txtopo.reliable.anchoring.envelope`) goes from slot to slot. It holds
  tuples of one edge, as Arrow columns in segments of (sending task, receiving task). It also holds
  the *links* of the tuples as columns of root ids and edge ids. Most tuples have one link.
* **Answers** (:mod:`~txtopo.reliable.anchoring.answers`) go from a slot to the slot of an acker:
  one XOR for each root with acked tuples, and the roots that were failed or given more time. If the
  acker of a tree is not in the slot of its spout, two more messages travel: the beginning of the
  tree to the acker, and its end back. Both may overtake acks. Both may be lost; then the tree times
  out.
* **A report** (:mod:`~txtopo.reliable.anchoring.envelope`) goes from a slot to the driver, after
  the envelopes and answers of the same part. It has the numbers of consumed and sent tuples, and
  what the spouts have done. A **grant** goes from the driver to a slot, and limits what its spouts
  may emit.
* **Back pressure.** The driver computes from reports how many tuples each slot still has to
  consume. It grants nothing while a slot has more than it can process in a fraction of the timeout;
  see :mod:`txtopo.reliable.credit`. Slots never wait for each other: two slots with tasks of each
  other's bolts could wait forever. So the number of tuples that wait in a slot is limited by what
  spouts may emit, multiplied by what bolts emit for each tuple.
* **A lost slot** loses the memory of its bolts, its spouts with their pending trees, its ackers,
  and everything on its way to it. It is started again with new bolts and spouts. Nothing else is
  needed. Trees of other slots that had tuples or their acker in the lost slot time out, and their
  spouts emit them again. The sources deliver again what the lost spouts had emitted. So records are
  neither acknowledged nor numbered. But they must not be *duplicated*: a tree with an edge that is
  acked twice never becomes complete, and a tree that begins twice may seem complete. A slot that
  was cut off may still send to other slots. Its envelopes cause duplicate work, and what it reports
  about trees is true. The driver must drop its reports.
"""
