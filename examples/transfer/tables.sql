-- What a bank keeps; both banks have the same tables. Amounts are in cents.

CREATE TABLE accounts (
    id text PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
);

-- What left an account of this bank. The id is chosen by whoever asks for the transfer, so asking
-- again after an answer was lost debits nothing twice.
CREATE TABLE debits (
    id uuid PRIMARY KEY,
    debited text NOT NULL REFERENCES accounts,
    credited text NOT NULL, -- an account of the other bank
    amount bigint NOT NULL CHECK (amount > 0),
    number bigint GENERATED ALWAYS AS IDENTITY
);

-- What arrived from the other bank, appended by `eosframework run-worker`. That each transfer is
-- here once needs no constraint on its id: rows and the position behind them commit together.
CREATE TABLE credits (
    id uuid NOT NULL,
    debited text NOT NULL, -- an account of the other bank
    credited text NOT NULL REFERENCES accounts,
    amount bigint NOT NULL CHECK (amount > 0),
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY
);

-- Whatever is appended to credits is added to the balances, in the transaction that appends it.
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
