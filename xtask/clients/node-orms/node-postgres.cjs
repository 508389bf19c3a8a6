// node-postgres by itself: types in text and in binary, errors with their fields, cancelling, a
// pipeline, cursors and streams.
"use strict";
const assert = require("node:assert/strict");
const { Client, Query } = require("pg");
const Cursor = require("pg-cursor");
const QueryStream = require("pg-query-stream");
const { place, refused } = require("./refused.cjs");

async function connected(options, work) {
  const client = new Client({ ...place, ...options });
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}

// Each value as it is read in text.
async function readsText(client) {
  await client.query("SET TimeZone = 'UTC'");
  const rows = [
    ["true::bool", true], ["(-7)::int2", -7], ["2147483647::int4", 2147483647], ["(-9223372036854775808)::int8", "-9223372036854775808"],
    ["1.5::float4", 1.5], ["(-0.1)::float8", -0.1], ["12345.6700::numeric(12,4)", "12345.6700"], ["'it''s ü'::text", "it's ü"],
    ["'ab'::char(4)", "ab  "], ["'ab'::varchar(4)", "ab"], ["'\\x00ff'::bytea", Buffer.from([0, 255])],
    ["'23:59:59.123456'::time", "23:59:59.123456"], ["'2024-07-01 12:00+00'::timestamptz", new Date("2024-07-01T12:00:00Z")],
    ["'00112233-4455-6677-8899-aabbccddeeff'::uuid", "00112233-4455-6677-8899-aabbccddeeff"], ["'10.0.0.1'::inet", "10.0.0.1"],
    ["'{\"b\": [1, null]}'::jsonb", { b: [1, null] }], ["'{1,NULL,3}'::int4[]", [1, null, 3]],
    ["ARRAY['x,y', NULL, '\"']::text[]", ["x,y", null, '"']], ["NULL::int4", null],
  ];
  for (const [text, value] of rows) {
    // By the simple protocol and by the extended one.
    for (const values of [[], ["x"]]) {
      const found = await client.query({ text: `SELECT ${text} AS value${values.length ? ", $1::text" : ""}`, values });
      assert.deepEqual(found.rows[0].value, value, text);
    }
  }
}

// It takes what arrives for UTF-8 in binary, too, so that these are values whose bytes are below 128.
async function readsBinary(client) {
  const found = await client.query({
    text: `SELECT $1::bool AS a, 300::int2 AS b, 2139062143::int4 AS c, 4611686018427387904::int8 AS d, 2.25::float4 AS e, 2.25::float8 AS f,
      12.0050::numeric AS g, 'it''s ü'::text AS h, '2000-01-01 00:00:08+00'::timestamptz AS i, '{1,2,3}'::int4[] AS j, '{x,y}'::text[] AS k,
      NULL::int4 AS l`,
    values: ["true"],
    binary: true,
  });
  assert.ok(found.fields.every((field) => field.format === "binary"));
  const { i, ...row } = found.rows[0];
  const wanted = { a: true, b: 300, c: 2139062143, d: "4611686018427387904", e: 2.25, f: 2.25, g: 12.005, h: "it's ü", j: [1, 2, 3], k: ["x", "y"], l: null };
  assert.deepEqual(row, wanted);
  assert.equal(i.getTime(), Date.parse("2000-01-01T00:00:08Z"));
}

async function meetsConstraints(client) {
  await client.query("CREATE TABLE owner (id int PRIMARY KEY)");
  await client.query(
    "CREATE TABLE thing (id int PRIMARY KEY, owner int CONSTRAINT of_owner REFERENCES owner, name text NOT NULL CONSTRAINT one_name UNIQUE, n int CONSTRAINT not_less CHECK (n >= 0))",
  );
  await client.query("INSERT INTO owner VALUES (1)");
  await client.query("INSERT INTO thing VALUES (1, 1, 'a', 0)");
  for (const [code, row, constraint, column, detail] of [
    ["23505", [2, 1, "a", 0], "one_name", undefined, "Key (name)=(a) already exists."],
    ["23503", [2, 9, "b", 0], "of_owner", undefined, 'Key (owner)=(9) is not present in table "owner".'],
    ["23514", [2, 1, "b", -1], "not_less", undefined, "Failing row contains (2, 1, b, -1)."],
    ["23502", [2, 1, null, 0], undefined, "name", "Failing row contains (2, 1, null, 0)."],
  ]) {
    const error = await refused(code, () => client.query("INSERT INTO thing VALUES ($1, $2, $3, $4)", row));
    const told = [error.severity, error.schema, error.table, error.constraint, error.column, error.detail];
    assert.deepEqual(told, ["ERROR", "public", "thing", constraint, column, detail]);
  }
  assert.equal((await refused("42703", () => client.query("SELECT nothing FROM thing"))).position, "8");
}

// A cancel request on a connection of its own, once the statement is there.
async function cancels(client) {
  const sleeps = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%'";
  await connected({}, async (other) => {
    let query;
    const slept = new Promise((done, failed) => {
      query = new Query("SELECT pg_sleep(60)", (error, result) => (error ? failed(error) : done(result)));
    });
    const refusal = refused("57014", () => slept);
    client.query(query);
    while ((await other.query(sleeps, [client.processID])).rowCount === 0);
    const canceller = new Client(place);
    // How its connection ends is of no interest: the statement tells whether it was heard.
    canceller.connection.on("error", () => {});
    canceller.cancel(client, query);
    await refusal;
  });
  assert.deepEqual((await client.query("SELECT 1 AS one")).rows, [{ one: 1 }]);
}

// What is sent without waiting for answers: statements of their own, a block, an error between them.
async function pipelines() {
  await connected({ pipeline: true }, async (client) => {
    await client.query("CREATE TABLE sent (id int PRIMARY KEY, n int NOT NULL)");
    const insert = (id) => client.query({ name: "insert", text: "INSERT INTO sent VALUES ($1, 0)", values: [id] });
    await Promise.all(Array.from({ length: 500 }, (_, id) => insert(id)));
    const block = ["BEGIN", "UPDATE sent SET n = n + 1", "SELECT sum(n)::int AS sum FROM sent", "ROLLBACK", "SELECT sum(n)::int AS sum FROM sent"];
    const answers = await Promise.all(block.map((text) => client.query(text)));
    assert.deepEqual([answers[2].rows[0].sum, answers[4].rows[0].sum], [500, 0]);
    const settled = await Promise.allSettled(Array.from({ length: 100 }, (_, i) => insert(i % 2 ? i : 1000 + i)));
    assert.deepEqual(settled.map((each) => each.reason?.code), settled.map((_, i) => (i % 2 ? "23505" : undefined)));
    assert.equal((await client.query("SELECT count(*)::int AS count FROM sent")).rows[0].count, 550);
  });
}

async function streams(client) {
  const series = "SELECT n::int AS n FROM generate_series(1, $1::int) n";
  let [sum, count] = [0, 0];
  for await (const row of client.query(new QueryStream(series, [10000], { batchSize: 50 }))) {
    sum += row.n;
    count += 1;
  }
  assert.deepEqual([sum, count], [50005000, 10000]);

  const cursor = client.query(new Cursor(series, [1000]));
  assert.deepEqual((await cursor.read(3)).map((row) => row.n), [1, 2, 3]);
  assert.deepEqual((await cursor.read(2)).map((row) => row.n), [4, 5]);
  // One that is given up leaves the connection fit for what comes.
  await cursor.close();
  const empty = client.query(new Cursor(series, [0]));
  assert.deepEqual(await empty.read(10), []);

  // What fails, fails where it is read.
  await refused("22012", () => client.query(new Cursor("SELECT 1 / $1::int AS n", [0])).read(2));
  await refused("22012", async () => {
    for await (const row of client.query(new QueryStream("SELECT 1 / $1::int AS n", [0]))) assert.fail(`a row: ${row.n}`);
  });
  assert.deepEqual((await client.query(series, [1])).rows, [{ n: 1 }]);
}

(async () => {
  await connected({}, async (client) => {
    for (const each of [readsText, readsBinary, meetsConstraints, cancels, streams]) await each(client);
  });
  await pipelines();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
