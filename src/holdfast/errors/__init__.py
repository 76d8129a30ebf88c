"""Every error a caller can meet, in one tree.

    HoldfastError
    ├── InvalidInput          the call is wrong; nothing was written, the same call will fail again
    │   ├── InvalidId         an id is empty, too long, not text, or has control characters
    │   ├── AmbiguousId       the beginning of an id that several runs share
    │   ├── InvalidCursor     a position or list cursor cannot be read
    │   ├── Unstorable        a value cannot be stored as it is; `path` names the offending part
    │   ├── LimitExceeded     a value or list is larger than limits.py allows
    │   ├── BlockingCall      a blocking verb was called inside a running event loop
    │   ├── InvalidAnswer     an answer does not fit its gate; `problems` lists all that is wrong
    │   ├── KeyReused         an effect's explicit key was given again with other arguments
    │   └── InvalidGraph      a declared workflow is not sound; `problems` lists all that is wrong
    ├── NotFound
    │   ├── RunNotFound
    │   ├── CheckpointNotFound
    │   └── UnknownWorkflow   this process has no workflow of that name
    ├── Conflict              somebody or something was first; nothing was written
    │   ├── RunExists
    │   ├── WorkflowConflict  the run belongs to another workflow
    │   ├── InputConflict     the run was started with other input
    │   ├── RunEnded          the run is completed, failed or cancelled
    │   ├── RunClaimed        another owner holds the run
    │   ├── ClaimLost         this claim is no longer the run's claim
    │   ├── PositionConflict  the journal has moved on
    │   ├── ParentRemoved     a checkpoint's parent is gone, without which it could not be read
    │   ├── CheckpointConflict  the checkpoint id is taken by other content
    │   ├── AttachmentConflict  the attachment key is taken by other content
    │   ├── NameTaken         the file this id would have is another id's
    │   ├── AlreadyAnswered   the gate has its answer
    │   └── GateClosed        the gate is not there, closed or expired
    ├── RunError              something a workflow did, or what became of it
    │   ├── StepFailed        a step raised, and its retries are used up
    │   │   ├── EffectFailed  an effect raised, and counts as not having happened
    │   │   ├── EffectInDoubt an effect was begun, and whether it happened is unknown
    │   │   ├── ResultLost    an effect was performed, but its result cannot be stored
    │   │   └── ChildFailed   a child run failed or was cancelled
    │   ├── InDoubt           raised by an effect's own function: it cannot tell whether it happened
    │   ├── MissingAwait      a call of an async workflow's run was not awaited; `call` and `place` say which
    │   ├── StageFailed       a stage of a declared workflow failed
    │   ├── GateExpired       a gate that was to fail when nobody answers in time
    │   ├── Diverged          the code does not do what the journal says it did
    │   ├── DefinitionChanged the declared workflow is not the one the run was started with; `changes` lists how
    │   ├── RunFailed         raised by `result()`: the workflow raised
    │   ├── RunCancelled      raised by `result()`
    │   ├── NotFinished       raised by `result(timeout=…)`: it has not ended in time
    │   ├── RollbackRefused   something cannot be undone; `plan` lists it
    │   └── RollbackFailed    an undo raised; the rollback can be taken up again
    ├── DamagedData           stored bytes are not what was stored; `place` names them
    │   ├── DamagedFile       a file of another system is torn, or not what its name says; it is left as it is
    │   └── UnsupportedFormat written by a newer version
    └── StorageError          the machine below failed
        ├── StorageFull       no room; a reserve is kept so that prune still works
        ├── StorageFailed     an input/output error; earlier saves are intact
        ├── StorageBusy       others held the store for longer than the timeout
        └── StoreClosed

    Interrupt (BaseException) what stops a workflow from outside; `except Exception` does not catch it
    ├── Suspended             it waits, was paused, or gives way; it will go on later, perhaps elsewhere
    ├── Cancelled             it was cancelled; `finally` blocks may still take steps
    ├── LeaseLost             another owner has the run; nothing more can be written
    └── Halted                the store failed in the middle; the run can be resumed

Facts are attributes. The message says what happened, where, and what to try. `retryable` says whether the same
call may succeed later without being changed.
"""

from __future__ import annotations

from holdfast.errors.interrupts import (
    Cancelled,
    Halted,
    Interrupt,
    LeaseLost,
    Suspended,
)
from holdfast.errors.runs import (
    ChildFailed,
    DefinitionChanged,
    Diverged,
    EffectFailed,
    EffectInDoubt,
    GateExpired,
    InDoubt,
    InputConflict,
    InvalidAnswer,
    InvalidGraph,
    KeyReused,
    MissingAwait,
    NotFinished,
    ResultLost,
    RollbackFailed,
    RollbackRefused,
    RunCancelled,
    RunError,
    RunFailed,
    StageFailed,
    StepFailed,
    UnknownWorkflow,
)
from holdfast.errors.stored import (
    AlreadyAnswered,
    AmbiguousId,
    AttachmentConflict,
    BlockingCall,
    CheckpointConflict,
    CheckpointNotFound,
    ClaimLost,
    Conflict,
    DamagedData,
    DamagedFile,
    GateClosed,
    HoldfastError,
    InvalidCursor,
    InvalidId,
    InvalidInput,
    LimitExceeded,
    NameTaken,
    NotFound,
    ParentRemoved,
    PositionConflict,
    RunClaimed,
    RunEnded,
    RunExists,
    RunNotFound,
    StorageBusy,
    StorageError,
    StorageFailed,
    StorageFull,
    StoreClosed,
    Unstorable,
    UnsupportedFormat,
    WorkflowConflict,
)

__all__ = [
    "AlreadyAnswered",
    "AmbiguousId",
    "AttachmentConflict",
    "BlockingCall",
    "Cancelled",
    "CheckpointConflict",
    "CheckpointNotFound",
    "ChildFailed",
    "ClaimLost",
    "Conflict",
    "DamagedData",
    "DamagedFile",
    "DefinitionChanged",
    "Diverged",
    "EffectFailed",
    "EffectInDoubt",
    "GateClosed",
    "GateExpired",
    "Halted",
    "HoldfastError",
    "InDoubt",
    "InputConflict",
    "Interrupt",
    "InvalidAnswer",
    "InvalidCursor",
    "InvalidGraph",
    "InvalidId",
    "InvalidInput",
    "KeyReused",
    "LeaseLost",
    "LimitExceeded",
    "MissingAwait",
    "NameTaken",
    "NotFinished",
    "NotFound",
    "ParentRemoved",
    "PositionConflict",
    "ResultLost",
    "RollbackFailed",
    "RollbackRefused",
    "RunCancelled",
    "RunClaimed",
    "RunEnded",
    "RunError",
    "RunExists",
    "RunFailed",
    "RunNotFound",
    "StageFailed",
    "StepFailed",
    "StorageBusy",
    "StorageError",
    "StorageFailed",
    "StorageFull",
    "StoreClosed",
    "Suspended",
    "UnknownWorkflow",
    "Unstorable",
    "UnsupportedFormat",
    "WorkflowConflict",
]
