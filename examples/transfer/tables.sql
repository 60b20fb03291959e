-- The tables of a bank; both banks have the same. Amounts are in cents.

CREATE TABLE accounts (
    id text PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
);

-- Transfers from accounts of this bank, inserted by `send`, or by `eosframework run-worker` with
-- `commit: together`. The client chooses the id, so a repeated request after a lost answer debits
-- nothing twice.
CREATE TABLE debits (
    id uuid PRIMARY KEY,
    debited text NOT NULL REFERENCES accounts,
    credited text NOT NULL, -- an account of the other bank
    amount bigint NOT NULL CHECK (amount > 0),
    number bigint GENERATED ALWAYS AS IDENTITY
);

-- Transfers from the other bank, appended by `eosframework run-worker`. Each transfer is appended
-- once without a constraint on its id, because rows and their position commit together.
CREATE TABLE credits (
    id uuid NOT NULL,
    debited text NOT NULL, -- an account of the other bank
    credited text NOT NULL REFERENCES accounts,
    amount bigint NOT NULL CHECK (amount > 0),
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY
);

-- Adds each appended credit to its balance, in the transaction that appends it.
CREATE FUNCTION credit_accounts() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    -- Workers that credit the same accounts take their locks in the same order: no deadlock.
    PERFORM FROM accounts
    WHERE id IN (SELECT credited FROM arrived)
    ORDER BY id
    FOR NO KEY UPDATE;

    UPDATE accounts
    SET balance = balance + received.amount
    FROM (SELECT credited, sum(amount) AS amount FROM arrived GROUP BY credited) AS received
    WHERE accounts.id = received.credited;
    RETURN NULL;
END $$;

CREATE TRIGGER credit_accounts AFTER INSERT ON credits
REFERENCING NEW TABLE AS arrived
FOR EACH STATEMENT EXECUTE FUNCTION credit_accounts();

-- Takes each debit from its balance, in the transaction that inserts it; the check of `accounts`
-- refuses what would overdraw one.
CREATE FUNCTION debit_accounts() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM accounts
    WHERE id IN (SELECT debited FROM left_)
    ORDER BY id
    FOR NO KEY UPDATE;

    UPDATE accounts
    SET balance = balance - sent.amount
    FROM (SELECT debited, sum(amount) AS amount FROM left_ GROUP BY debited) AS sent
    WHERE accounts.id = sent.debited;
    RETURN NULL;
END $$;

CREATE TRIGGER debit_accounts AFTER INSERT ON debits
REFERENCING NEW TABLE AS left_
FOR EACH STATEMENT EXECUTE FUNCTION debit_accounts();
