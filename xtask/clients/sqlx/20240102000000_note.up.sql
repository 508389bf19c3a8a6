-- no-transaction
CREATE INDEX CONCURRENTLY entry_by_account ON entry (account);
