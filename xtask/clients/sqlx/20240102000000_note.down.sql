DROP INDEX entry_by_account;
