"""Due work in one table: the outbox and other messages; and the leases of duties."""
