// Types there and back, errors with their fields, transactions that are tried again, cancelling,
// cursors, statements that are described, notifications.
import assert from 'node:assert'
import postgres from 'postgres'

const one = postgres({ max: 1, connection: { TimeZone: 'UTC' } })
const pool = postgres({ max: 4 })

async function refused(code, work) {
  try {
    await work()
  } catch (error) {
    assert.strictEqual(error.code, code, error)
    return error
  }
  assert.fail(`${code} was expected`)
}

// Values as parameters, and as answers of the extended and of the simple protocol: all of them text.
async function types() {
  await one`CREATE TYPE temper AS ENUM ('sad', 'happy')`
  await one`CREATE TABLE kinds (id int PRIMARY KEY, flag bool, small int2, large int8, single float4, double float8, exact numeric, words text,
    raw bytea, day date, hour time, instant timestamptz, span interval, key uuid, address inet, document jsonb, plain json, numbers int4[],
    names text[], temper temper)`
  const wanted = {
    id: 1, flag: true, small: -7, large: '9223372036854775807', single: 1.5, double: -0.1, exact: '-12345.6700', words: `it's "quoted" ü`,
    raw: Buffer.from([0, 1, 254, 255]), day: new Date('2024-02-29T00:00:00Z'), hour: '23:59:59.123456', instant: new Date('2024-02-29T12:30:15.123Z'),
    span: '1 year 2 mons 3 days 00:00:04.005006', key: '00112233-4455-6677-8899-aabbccddeeff', address: '10.0.0.1', document: { a: [1, null] },
    plain: ['two'], numbers: [3, -1], names: ['a,b', '"', 'NULL '], temper: 'happy'
  }
  await one`INSERT INTO kinds ${one({ ...wanted, document: one.json(wanted.document) })}`
  const nothing = Object.fromEntries(Object.keys(wanted).map(name => [name, null]))
  await one`INSERT INTO kinds (id, flag, large, document, numbers) VALUES (2, ${null}, ${null}, ${null}, ${null})`
  for (const rows of [await one`SELECT * FROM kinds ORDER BY id`, await one`SELECT * FROM kinds ORDER BY id`.simple()]) {
    assert.deepStrictEqual(rows.map(row => ({ ...row })), [wanted, { ...nothing, id: 2 }])
  }
  const [first, second] = await one.unsafe('SELECT 1 AS a; SELECT 2 AS b')
  assert.deepStrictEqual([first[0].a, second[0].b], [1, 2])
}

// Each constraint's error with its fields.
async function errors() {
  await one`CREATE TABLE client (id int PRIMARY KEY)`
  await one`CREATE TABLE account (id int PRIMARY KEY, client int CONSTRAINT of_client REFERENCES client,
    name text NOT NULL CONSTRAINT one_name UNIQUE, balance int CONSTRAINT not_less CHECK (balance >= 0))`
  await one`INSERT INTO client VALUES (1)`
  await one`INSERT INTO account VALUES (1, 1, 'a', 0)`
  for (const [code, row, constraint, column, detail] of [
    ['23505', [2, 1, 'a', 0], 'one_name', undefined, 'Key (name)=(a) already exists.'],
    ['23503', [2, 9, 'b', 0], 'of_client', undefined, 'Key (client)=(9) is not present in table "client".'],
    ['23514', [2, 1, 'b', -1], 'not_less', undefined, 'Failing row contains (2, 1, b, -1).'],
    ['23502', [2, 1, null, 0], undefined, 'name', 'Failing row contains (2, 1, null, 0).']
  ]) {
    const [id, client, name, balance] = row
    const error = await refused(code, () => one`INSERT INTO account VALUES (${id}, ${client}, ${name}, ${balance})`)
    const told = [error.severity, error.schema_name, error.table_name, error.constraint_name, error.column_name, error.detail]
    assert.deepStrictEqual(told, ['ERROR', 'public', 'account', constraint, column, detail])
  }
  assert.strictEqual((await refused('42703', () => one`SELECT nothing FROM account`)).position, '8')
}

// A savepoint that goes back, and what came before it.
async function savepoints() {
  const balance = await one.begin(async sql => {
    await sql`UPDATE account SET balance = 7`
    await refused('23505', () => sql.savepoint(async inner => {
      await inner`UPDATE account SET balance = 8`
      await inner`INSERT INTO account VALUES (1, 1, 'again', 0)`
    }))
    const [row] = await sql`SELECT balance FROM account`
    await sql`UPDATE account SET balance = 0`
    return row.balance
  })
  assert.strictEqual(balance, 7)
}

// Transactions that meet each other run again until all of them have counted.
async function retries() {
  const deposit = async () => {
    for (;;) {
      try {
        return await pool.begin('isolation level serializable', async sql => {
          const [{ balance }] = await sql`SELECT balance FROM account WHERE id = 1`
          await sql`UPDATE account SET balance = ${balance + 1} WHERE id = 1`
        })
      } catch (error) {
        assert(['40001', '40P01'].includes(error.code), error)
      }
    }
  }
  await Promise.all(Array.from({ length: 40 }, deposit))
  const [{ balance }] = await one`SELECT balance FROM account WHERE id = 1`
  assert.strictEqual(balance, 40)
}

// A cancel request on a connection of its own, once the statement is there.
async function cancels() {
  const [{ pid }] = await one`SELECT pg_backend_pid() AS pid`
  const query = one`SELECT pg_sleep(60)`.simple()
  const refusal = refused('57014', () => query)
  for (let active = 0; active === 0;) {
    const rows = await pool`SELECT 1 FROM pg_stat_activity WHERE pid = ${pid} AND state = 'active' AND query LIKE '%pg_sleep%'`
    active = rows.length
  }
  query.cancel()
  await refusal
  const [{ two }] = await one`SELECT 2 AS two`
  assert.strictEqual(two, 2)
}

// Rows some at a time: to the end, given up after the first, and one by one without a cursor.
async function streams() {
  let [sum, most] = [0, 0]
  for await (const rows of one`SELECT n FROM generate_series(1, ${1000}::int) n`.cursor(64)) {
    most = Math.max(most, rows.length)
    for (const { n } of rows) sum += n
  }
  assert.deepStrictEqual([sum, most], [500500, 64])
  for await (const [{ n }] of one`SELECT n FROM generate_series(1, ${1000}::int) n`.cursor()) {
    assert.strictEqual(n, 1)
    break
  }
  sum = 0
  await one`SELECT n FROM generate_series(1, ${1000}::int) n`.forEach(({ n }) => { sum += n })
  assert.strictEqual(sum, 500500)
}

// What the server says of a statement that is not executed.
async function describes() {
  const statement = await one`SELECT id, name FROM account WHERE balance >= ${1} AND name <> ${'b'}`.describe()
  assert.deepStrictEqual(statement.types, [23, 25])
  assert.deepStrictEqual(statement.columns.map(({ name, type }) => [name, type]), [['id', 23], ['name', 25]])
}

// What another session tells when it commits, and nothing of what it takes back.
async function notifications() {
  const heard = []
  let first
  const told = new Promise(resolve => { first = resolve })
  const { unlisten } = await one.listen('news', payload => { heard.push(payload); first() })
  await pool.begin(async sql => {
    await sql`SELECT pg_notify('news', 'taken back')`
    throw new Error('taken back')
  }).catch(error => assert.strictEqual(error.message, 'taken back'))
  await pool.notify('news', 'hello')
  await told
  assert.deepStrictEqual(heard, ['hello'])
  await unlisten()
}

for (const each of [types, errors, savepoints, retries, cancels, streams, describes, notifications]) await each()
await one.end()
await pool.end()
