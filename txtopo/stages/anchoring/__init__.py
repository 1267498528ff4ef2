"""At-least-once topologies in slots: what travels, and what runs where.

* **A slot** hosts the bolt tasks with *task mod slots = slot*, for as long as it lives: a
  :class:`~txtopo.stages.anchoring.slot.Slot` with its bolts' memory. It is used on one thread. It
  knows nothing of what carries envelopes: ``work(envelopes)`` takes what came and runs the bolts
  until nothing is left that the slot sent to itself. What comes of it leaves in *parts*, some of
  them while the bolts still work: envelopes for other slots, and a *report* for the driver.
* **The driver** hosts the spouts (:class:`~txtopo.stages.anchoring.spout_task.ReliableSpoutTask`,
  a thread each, so that all calls of a task come on one thread), the ackers and the list of pending
  trees.
* **An envelope** (:mod:`~txtopo.stages.anchoring.envelope`) holds tuples of one edge of the
  topology for one slot: Arrow columns, in segments of (sending task, receiving task), and the
  *links* of the tuples as columns: root id and edge id, one link a tuple if there is nothing else
  to say. It goes from driver to slot and from slot to slot.
* **A report** (:mod:`~txtopo.stages.anchoring.envelope`) goes from a slot to the driver, after the
  envelopes of the same part: one XOR per root for all that was acked in it, the roots that were
  failed or given more time, how many tuples were consumed and sent to whom, and counts.
* **Back pressure.** The driver adds up from reports how many tuples each slot has still to consume,
  and calls no spout while one has more than it finishes in a share of the timeout, see
  :mod:`txtopo.runtime.reliable.credit`. Slots never wait for each other: two that host
  tasks of each other's bolts would wait forever. So what lies in front of a slot is bounded by what
  spouts may have under way, times what bolts make of a tuple.
* **A slot is lost** with its bolts' memory and all that was on its way to it; its successor starts
  with fresh bolts. Nobody mends anything: the trees of what is lost time out, and the spouts bring
  them again. So an envelope need not be acknowledged or numbered. It must not be *doubled*, though:
  a tree of which an edge is acked twice never gets complete. What a cut off slot still sends to
  others only makes doubled work; its reports must not be heard.
"""
