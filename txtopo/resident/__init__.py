"""The carrier ``resident``: slots that live in Spark tasks, and envelopes over ZeroMQ.

Two kinds of topologies use them. At-least-once topologies host their bolts and spouts in slots
(:mod:`~txtopo.resident.bolt_slots`). Transactional topologies let slots compute the stages of their
runs (:mod:`~txtopo.resident.carrier`). The code that runs in the tasks is in
:mod:`~txtopo.resident.hosts`.

* **A slot is one Spark job with one task**, which ends when the run does. A job that dies is
  submitted again; Spark finds a place for it and starts the processes. If all slots were one job,
  the loss of one slot would end all of them, since ``local[n]`` never retries a task.
* **Two state machines without I/O make the decisions.** :mod:`~txtopo.resident.supervisor` decides
  which task owns a slot and when to submit another job. :mod:`~txtopo.resident.orders` decides
  which stage a slot computes next. :mod:`~txtopo.resident.slot_runner` and the carrier carry out
  their actions, and a simulator runs them from seeds.
* **The driver** has one ROUTER socket. Each task opens a DEALER socket to it. A task with bolts
  also opens a PULL socket, to which the other slots push envelopes and acks.
* **Lives.** A task sends *hello* to the driver and receives the number of its life. Then it
  prepares its bolts and sends *ready*. Only after that do its spouts get grants. The newest task
  owns a slot, and its predecessor is cut off: the driver ignores its messages, and its envelopes
  carry the number of an ended life. So a copy that Spark runs speculatively, or a task on an
  executor that was given up too early, does no harm.
* **The directory** tells each slot where the other slots listen and the numbers of their lives.
  Records for a slot between two lives are kept until the next life has begun.
* **Bounds.** No socket has a high-water mark: slots never wait for each other (two full slots would
  wait forever), and the driver must not wait. When slots compute stages, the limit is one order per
  slot. When they host bolts, credits set the limit (see :mod:`txtopo.reliable.anchoring`): spouts
  wait while a slot has more to consume than it can finish in a share of the timeout. Reports arrive
  over different connections; :mod:`~txtopo.resident.in_flight` keeps the sums exact.
* **Parts.** Tuples and acks of a bolt leave while it works, in reports like the last one of a
  work. These reports belong to the same life, use the same connection, and count in the same way.
  Anything that a task reports after it was cut off, even in the middle of a work, is dropped.
* **Keys.** Each run creates CURVE keys. They travel only in the closure of its tasks, so they are
  as safe as Spark's own connections. A CurveZMQ server answers only clients that know its public
  key, which never crosses a connection. Here the public key is kept secret too: without it nobody
  can send or read an envelope.
* **Death.** When a worker dies, its job ends, which the driver notices at once. The next ping, once
  a second, reveals a lost connection. A task that gets no message from the driver for ten seconds
  ends itself, so no task stays behind when the driver is gone.
* **A core that does not come back** leaves a job waiting without an end or an error. So a slot that
  cannot work is logged as missing after half of ``Config.batch_timeout_s``, or of
  ``AtLeastOnceConfig.slot_timeout_s``. After the whole time, a transactional run that needs the
  slot ends, or changes the carrier if ``"auto"`` chose it.
"""
