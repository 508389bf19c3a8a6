// Fifty inserts at a time through one connection, each a transaction of its own, and as many through a pool; then transactions that wait for each other.
import assert from 'node:assert'
import postgres from 'postgres'

const many = (count, job) => Promise.all(Array.from({ length: count }, (_, i) => job(i)))

const one = postgres({ max: 1 })
await one`CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL)`
for (let round = 0; round < 20; round++) {
  await many(50, i => one`INSERT INTO item VALUES (${round * 50 + i}, 0)`)
}

const pool = postgres({ max: 5 })
for (let round = 20; round < 40; round++) {
  await many(50, i => pool`INSERT INTO item VALUES (${round * 50 + i}, 0)`)
}
const [{ count }] = await one`SELECT count(*)::int AS count FROM item`
assert.strictEqual(count, 2000)

// All of them want one row: each but one waits for its lock, and more statements arrive meanwhile.
await many(40, () => pool.begin('ISOLATION LEVEL READ COMMITTED', async sql => {
  const [, [{ n }]] = await Promise.all([
    sql`UPDATE item SET n = n + 1 WHERE id = 1`,
    sql`SELECT n FROM item WHERE id = 1`,
  ])
  assert(n > 0)
}))
const [{ n }] = await one`SELECT n FROM item WHERE id = 1`
assert.strictEqual(n, 40)

// An error in the middle of a pipeline is its own statement's only.
const settled = await Promise.allSettled(Array.from({ length: 50 }, (_, i) => one`INSERT INTO item VALUES (${i % 2 ? i : 10000 + i}, 0)`))
assert.strictEqual(settled.filter(result => result.reason?.code === '23505').length, 25)
await one.end()
await pool.end()
