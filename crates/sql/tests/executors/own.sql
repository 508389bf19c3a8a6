SET TimeZone = 'Europe/Berlin';
INSERT INTO t (id, a, b, s, n, u, x, y, d, ok) VALUES (200, 5, 5, 5, 5.00, 5, 'own', 'own', '2024-05-05', true), (201, 0, 0, 0, 0, 0, 'a%', 'y1', '2024-02-29', false);
UPDATE t SET a = a + 1, x = x || 'u' WHERE id BETWEEN 3 AND 9;
DELETE FROM t WHERE id IN (10, 11, 12);
DELETE FROM v WHERE q = 7;
INSERT INTO v VALUES (200, 1, 1.125, 'own'), (1, 99, NULL, NULL);
UPDATE v SET p = p * 2 WHERE q > 25;
