"""All tables: whoever needs the whole schema (migrations, tests) imports this module."""

from gonogo_service.bisections import model as _bisections
from gonogo_service.builds import model as _builds
from gonogo_service.ci import model as _ci
from gonogo_service.ci import rules as _rules
from gonogo_service.devices import model as _devices
from gonogo_service.flags import model as _flags
from gonogo_service.gauges import model as _gauges
from gonogo_service.hosts import model as _hosts
from gonogo_service.jobs import model as _jobs
from gonogo_service.kit import audit as _audit
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.outbox import model as _outbox
from gonogo_service.people import model as _people
from gonogo_service.results import model as _results
from gonogo_service.schedules import model as _schedules
from gonogo_service.suites import model as _suites
from gonogo_service.tests import model as _tests
from gonogo_service.waivers import model as _waivers
from gonogo_service.webhooks import model as _webhooks

MODELS = (
    _audit,
    _outbox,
    _bisections,
    _builds,
    _ci,
    _rules,
    _devices,
    _flags,
    _gauges,
    _hosts,
    _jobs,
    _people,
    _results,
    _schedules,
    _suites,
    _tests,
    _waivers,
    _webhooks,
)
TABLES = Base.metadata.tables
