CREATE TABLE t (id int PRIMARY KEY, a int, b bigint, s smallint, n numeric(10,2), u numeric, f float8, r float4,
  x text, y varchar(20), d date, ts timestamp, tz timestamptz, i interval, ok bool, g uuid, by bytea, c char(5), jb jsonb, j json);
CREATE TABLE v (t_id int, q int, p numeric(12,3), name text, PRIMARY KEY (t_id, q));
CREATE TABLE e (id int PRIMARY KEY, word text);
INSERT INTO t SELECT i, i % 7 - 2, i * 1000000007::bigint, (i % 5)::smallint, (i * 1.25)::numeric(10,2), i / 3.0, i / 4.0::float8, (i / 8.0)::float4,
  substr('abcBcdefab', i % 9 + 1, i % 4), 'y' || i % 3, DATE '2024-01-15' + i * 11, TIMESTAMP '2024-01-31 10:00:00' + i * INTERVAL '7 hours',
  TIMESTAMPTZ '2024-06-01 00:00:00+00' + i * INTERVAL '1 day', i * INTERVAL '1 day 2 hours', i % 3 = 0,
  NULL, decode('0' || i % 10, 'hex'), 'c' || i % 4, NULL, NULL FROM generate_series(1, 25) AS g(i);
INSERT INTO t (id) VALUES (100);
INSERT INTO t (id, a, b, n, u, f, x, d, i) VALUES (101, -2147483648, -9223372036854775808, -0.01, 1.50, 0.1, 'ä€', '1999-12-31', '24 hours'),
  (102, 2147483647, 9223372036854775807, 99999999.99, 1.5, 1e300, '', '2024-02-29', '1 day');
INSERT INTO v SELECT i % 12 + 1, i, i * 0.125, 'n' || i % 4 FROM generate_series(1, 30) AS g(i);
CREATE TABLE k (g int, x text, d date, b bigint, s smallint, o bool, m timestamptz, z bytea, q uuid, PRIMARY KEY (g, x, d));
CREATE INDEX k_b ON k (b DESC NULLS LAST, s);
CREATE INDEX k_s ON k (s NULLS FIRST);
CREATE INDEX k_m ON k (m DESC);
CREATE UNIQUE INDEX k_z ON k (z, q);
INSERT INTO k SELECT i % 6 - 2, substr('aAbBäzZ', i % 7 + 1, i % 3), DATE '2024-01-01' + i, CASE WHEN i % 5 > 0 THEN i % 9 * 1000000007::bigint END,
  CASE WHEN i % 4 > 0 THEN (i % 8)::smallint END, i % 3 = 0, CASE WHEN i % 7 > 0 THEN TIMESTAMPTZ '2024-06-01 00:00:00+00' + i % 11 * INTERVAL '1 day' END,
  decode('0' || i % 10, 'hex'), CASE WHEN i % 2 = 0 THEN ('00000000-0000-0000-0000-000000000' || i + 100)::uuid END FROM generate_series(1, 120) AS g(i);
INSERT INTO k VALUES (2147483647, '', '9999-12-31', 9223372036854775807, 32767, true, '9999-12-31 00:00:00+00', '', NULL),
  (-2147483648, 'ÿ', '0001-01-01', -9223372036854775808, -32768, false, '0001-01-01 00:00:00+00', 'ff', NULL);
