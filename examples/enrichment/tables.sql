CREATE TABLE IF NOT EXISTS customers (
    id text PRIMARY KEY,
    name text NOT NULL,
    country text NOT NULL
);

CREATE TABLE IF NOT EXISTS orders (
    id uuid PRIMARY KEY,
    customer text NOT NULL REFERENCES customers,
    cents integer NOT NULL CHECK (cents > 0)
);
