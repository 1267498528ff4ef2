"""Anchoring: how tuples, acks and fails of at-least-once topologies travel between slots.

* **A slot** hosts the bolt tasks with *task mod slots = slot* for as long as it lives. It is a
  :class:`~txtopo.stages.anchoring.slot.Slot`, and it has its bolts' memory. It is used on one
  thread, and knows nothing about its carrier. ``work(envelopes)`` runs the bolts on the envelopes
  that arrived, and on those that the slot sends to itself. The results leave in *parts*, some of
  them while the bolts still work. A part has envelopes for other slots, and a *report* for the
  driver.
* **The driver** hosts the ackers, the list of pending trees and the spouts. Each spout task
  (:class:`~txtopo.stages.anchoring.spout_task.ReliableSpoutTask`) has its own thread.
* **An envelope** (:mod:`~txtopo.stages.anchoring.envelope`) goes from the driver or a slot to a
  slot. It holds tuples of one edge, as Arrow columns in segments of (sending task, receiving task).
  It also holds the *links* of the tuples as columns of root ids and edge ids. Most tuples have one
  link.
* **A report** (:mod:`~txtopo.stages.anchoring.envelope`) goes from a slot to the driver, after the
  envelopes of the same part. It has one XOR for each root of which a tuple was acked, the roots
  that were failed or given more time, and the numbers of tuples that were consumed and sent.
* **Back pressure.** The driver computes from reports how many tuples each slot still has to
  consume. It calls no spout while a slot has more than it can process in a fraction of the timeout,
  see :mod:`txtopo.runtime.reliable.credit`. Slots never wait for each other, because two slots with
  tasks of each other's bolts would wait forever. So the number of tuples that wait in a slot is
  limited by what spouts may emit, multiplied by what bolts emit for each tuple.
* **A lost slot** loses its bolts' memory and all envelopes on their way to it. It is started again
  with new bolts. Nothing else is done about it: the trees of the lost tuples time out, and the
  spouts emit them again. So envelopes are neither acknowledged nor numbered. But they must not be
  *doubled*, because a tree with an edge that is acked twice never gets complete. A slot that was
  cut off may still send envelopes to others; they only cause duplicate work. Its reports must be
  dropped.
"""
