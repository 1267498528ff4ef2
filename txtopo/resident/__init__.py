"""The carrier ``resident``: slots that live in Spark tasks, and envelopes over ZeroMQ.

Two kinds of topologies use them. At-least-once topologies host their bolts and spouts there
(:mod:`~txtopo.resident.bolt_slots`); transactional topologies have them compute the stages
of their runs (:mod:`~txtopo.resident.carrier`). What runs in the tasks is in
:mod:`~txtopo.resident.hosts`.

* **A slot is one Spark job with one task**, which ends when the run does. A job that dies is
  submitted again; Spark finds a place for it and starts the processes. If all slots were one job,
  the loss of one would end all, since ``local[n]`` never tries a task twice.
* **Two machines without I/O decide**: :mod:`~txtopo.resident.supervisor` which task has a
  slot and when it is given another job, :mod:`~txtopo.resident.orders` which stage a slot
  computes next. :mod:`~txtopo.resident.slot_runner` and the carrier do what they say, and a
  simulator runs them from seeds.
* **The driver** has one ROUTER socket. Each task opens a DEALER socket to it. A task with bolts
  opens a PULL socket of its own too, on which the other slots push envelopes and acks to it.
* **Lives.** A task says *hello* to the driver and is told the number of its life; then it prepares
  its bolts, says *ready*, and only then are its spouts granted turns. The newest task owns a slot,
  and its predecessor is cut off: the driver does not hear it any more, and its envelopes name a
  life that nobody has. So a copy that Spark runs speculatively, or a task on an executor that was
  given up too early, can do no harm.
* **The directory** tells each slot where the others listen and which life they are in. What is sent
  to a slot between two lives is kept until the next one is there.
* **Bounds.** No socket has a high-water mark: slots never wait for each other (two that are full
  would wait forever), and the driver must not wait. What is under way is bounded by one order a
  slot where stages are computed, and by credits where bolts live, see
  :mod:`txtopo.reliable.anchoring`: spouts wait while a slot has more to consume than it finishes in
  a share of the timeout. Reports come over different connections;
  :mod:`~txtopo.resident.in_flight` keeps the sums exact.
* **Parts.** What a bolt emits or acks leaves while it works, in reports like the last one of a
  work. They are of the same life, on the same connection, and counted the same way: what a task
  reports after it was cut off, also in the middle of a work, is dropped.
* **Keys.** Each run makes CURVE keys, which travel in the closure of its tasks and nowhere else, so
  they are as safe as Spark's own connections. A CurveZMQ server answers only clients that know its
  public key, which never crosses a connection. It is kept secret here: without it nobody can send
  an envelope, or read one.
* **Death.** A worker that dies ends its job, which the driver sees at once. A lost connection shows
  at the next ping, once a second. A task that hears nothing of the driver for ten seconds ends
  itself, so none stays behind when the driver is gone.
* **A core that does not come back** leaves a job waiting without an end or an error. So a slot that
  cannot work is logged as missing after half of ``Config.batch_timeout_s``, or of
  ``AtLeastOnceConfig.slot_timeout_s``. After all of it, a transactional run that needs the slot
  ends, or changes the carrier if ``"auto"`` chose it.
"""
