CREATE TABLE delays_by_hour (
    origin text,
    time_hour timestamptz,
    flights bigint,
    departed bigint,
    delay_minutes bigint,
    temperature double precision,
    wind_speed double precision,
    PRIMARY KEY (origin, time_hour)
);
