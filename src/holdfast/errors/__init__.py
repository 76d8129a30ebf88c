"""Every error of the library, in one tree.

    HoldfastError
    ├── InvalidInput          the call is wrong; nothing was written, the same call will fail again
    │   ├── InvalidId         an id is empty, too long, not text, or has control characters
    │   ├── AmbiguousId       a prefix that several run ids share
    │   ├── InvalidCursor     a position or list cursor cannot be parsed
    │   ├── Unstorable        a value cannot be stored as it is; `path` names the offending part
    │   ├── LimitExceeded     a value or list is larger than limits.py allows
    │   ├── BlockingCall      a blocking call was made inside a running event loop
    │   ├── InvalidAnswer     an answer does not fit its gate; `problems` lists everything wrong with it
    │   ├── KeyReused         an effect's explicit key was used again with other arguments
    │   └── InvalidGraph      a declared workflow is invalid; `problems` lists everything wrong with it
    ├── NotFound
    │   ├── RunNotFound
    │   ├── CheckpointNotFound
    │   └── UnknownWorkflow   this process has no workflow of that name
    ├── Conflict              the stored state does not allow the call; nothing was written
    │   ├── RunExists
    │   ├── WorkflowConflict  the run belongs to another workflow
    │   ├── InputConflict     the run was started with other input
    │   ├── RunEnded          the run is completed, failed or cancelled
    │   ├── RunClaimed        another owner has claimed the run
    │   ├── ClaimLost         this claim is no longer the run's claim
    │   ├── PositionConflict  the journal has grown since it was read
    │   ├── ParentRemoved     a checkpoint's parent was removed, and it cannot be read without it
    │   ├── CheckpointConflict  the checkpoint id is taken by other content
    │   ├── AttachmentConflict  the attachment key is taken by other content
    │   ├── NameTaken         the file this id would have belongs to another id
    │   ├── PlanChanged       the run has changed since the plan was made
    │   ├── AlreadyAnswered   the gate already has its answer
    │   └── GateClosed        the gate does not exist, or is closed or expired
    ├── RunError              a failure inside a workflow, or the outcome of its run
    │   ├── StepFailed        a step raised, and its retries are used up
    │   │   ├── EffectFailed  an effect raised, and counts as not having happened
    │   │   ├── EffectInDoubt it is unknown whether an effect happened
    │   │   ├── ResultLost    an effect was performed, but its result cannot be stored
    │   │   └── ChildFailed   a child run failed or was cancelled
    │   ├── InDoubt           raised by an effect's own function: it does not know whether it happened
    │   ├── MissingAwait      a call of an async workflow's run was not awaited; `call` and `place` name it
    │   ├── StageFailed       a stage of a declared workflow failed
    │   ├── GateExpired       a gate declared to fail on expiry got no answer in time
    │   ├── Diverged          the code does not do what the journal recorded
    │   ├── DefinitionChanged the declared workflow differs from the one the run was started with; `changes` lists how
    │   ├── RunFailed         raised by `result()`: the workflow raised
    │   ├── RunCancelled      raised by `result()`
    │   ├── NotFinished       raised by `result(timeout=…)`: the run has not ended in time
    │   ├── RollbackRefused   something cannot be undone; `plan` lists it
    │   └── RollbackFailed    an undo raised; the rollback can be repeated
    ├── DamagedData           stored bytes are not what was stored; `place` names them
    │   ├── DamagedFile       a file of another system is torn, or not what its name says; it is left unchanged
    │   └── UnsupportedFormat written by a newer version of Holdfast
    └── StorageError          the storage below failed
        ├── StorageFull       the disk is full; a reserve is kept so that prune still works
        ├── StorageFailed     an input/output error; earlier saves are intact
        ├── StorageBusy       other processes held the store for longer than the timeout
        └── StoreClosed

    Interrupt (BaseException) stops a workflow from outside; `except Exception` does not catch it
    ├── Suspended             the run waits, was paused, or yields to a stopping worker; it will run again
    ├── Cancelled             the run was cancelled; `finally` blocks may still take steps
    ├── LeaseLost             another owner has the run; nothing more can be written
    └── Halted                the store failed in the middle of the run; the run can be resumed

Facts are attributes. The message says what failed, with the value, then what to do. `retryable` says whether the same
call may succeed later without being changed.
"""

from __future__ import annotations

from holdfast.errors.store import *  # noqa: F403 - __all__ is computed below
from holdfast.errors.store import HoldfastError
from holdfast.errors.workflow import *  # noqa: F403 - as above
from holdfast.errors.workflow import Interrupt

__all__ = [  # a new error needs its class and its line in the tree above, nothing else
    name
    for name, value in sorted(globals().items())
    if isinstance(value, type) and issubclass(value, HoldfastError | Interrupt)
]
