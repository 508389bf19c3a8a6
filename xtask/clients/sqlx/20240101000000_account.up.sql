CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE account (
    id bigserial PRIMARY KEY,
    owner text NOT NULL CONSTRAINT account_owner_unique UNIQUE,
    balance numeric(12, 2) NOT NULL DEFAULT 0 CONSTRAINT account_balance_check CHECK (balance >= 0),
    mood mood
);
CREATE TABLE entry (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account bigint NOT NULL CONSTRAINT entry_account_fkey REFERENCES account
);
