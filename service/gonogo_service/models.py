"""All tables, for what needs the whole schema: migrations and tests.

The module `model` of each room is found by itself.
"""

from gonogo_service.kit import audit, idempotency, rooms
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.outbox import model as outbox

MODELS = (audit, idempotency, outbox, *rooms.modules("model"))
METADATA = Base.metadata
