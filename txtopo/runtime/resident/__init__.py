"""The carrier ``resident``: slots that live in Spark tasks, and envelopes over ZeroMQ.

Two kinds of topologies use them, and share what follows. At-least-once topologies host their bolts
there; :mod:`~txtopo.runtime.resident.slots` is the driver's end and
:mod:`~txtopo.runtime.resident.slot_host` the task. Transactional topologies have them compute the
stages of their runs; :mod:`~txtopo.runtime.resident.stages` says how.

* **A slot is one Spark job with one task**, which ends when the run does. It is submitted again
  when it dies: Spark finds the place and starts the processes. One job for all slots would take all
  of them down with one, since ``local[n]`` tries no task twice.
* **The driver** has one ROUTER socket. Each task opens a DEALER socket to it. A task with bolts
  opens a PULL socket of its own too, on which the other slots push envelopes to it.
* **Lives.** A task says *hello* to the driver and is told the number of its life; then it prepares
  its bolts, says *ready*, and only then is given envelopes. Numbers of lives grow, over all slots.
  The newest hello owns a slot. Whoever owned it before is cut off: the driver hears it no more, and
  its envelopes name a life that nobody has. So a copy that Spark runs speculatively, or a task on
  an executor that was given up too early, can do no harm.
* **The directory** tells each slot where the others listen and which life they are in. What is sent
  to a slot between two lives is kept until the next one is there.
* **Bounds.** No socket has a high-water mark: slots never wait for each other (two that are full
  would wait forever), and the driver must not. What is under way is bounded by one order a slot
  where stages are computed, and by credits where bolts live, see :mod:`txtopo.stages.anchoring`:
  spouts wait while a slot has more to consume than it finishes in a share of the timeout.
  Reports come over different connections; :mod:`~txtopo.runtime.resident.accounts` keeps the sums
  exact.
* **Parts.** What a bolt says leaves while it works, in reports like the last one of a work. They
  are of the same life, on the same connection, and counted the same way: a task that is cut off in
  the middle of a work is heard no more from then on, whatever it has still to say.
* **Keys.** Each run makes CURVE keys, which travel in the closure of its tasks and nowhere else, so
  as safe as Spark's own connections. A CurveZMQ server answers only who knows its public key, which
  never crosses a connection; it is kept secret here, and who does not know it can neither put an
  envelope in nor read one.
* **Death.** A worker that dies ends its job, which the driver sees at once. A lost connection shows
  at the next ping, once a second. A task that hears nothing of the driver for ten seconds ends
  itself, so none stays behind when the driver is gone.
"""
