-- GROUPING SETS, ROLLUP, CUBE and GROUPING.
CREATE TABLE w (id int PRIMARY KEY, g text, a int, b numeric, f float8, d date, ts timestamp, i interval, ok bool, j jsonb, r int[]);
INSERT INTO w VALUES (1,'x',3,1.5,0.5,'2024-01-31','2024-01-31 10:00','1 day',true,'{"a":1}','{1,2}'),
(2,'x',1,2.25,1.5,'2024-02-10','2024-02-01 10:00','2 days',false,'[1]','{3}'),
(3,'x',3,NULL,'NaN','2024-02-29','2024-02-02 00:00','1 mon',true,NULL,NULL),
(4,'y',NULL,4,2.5,'2024-03-01','2024-03-01 00:00','3 days',NULL,'"q"','{}'),
(5,'y',7,0.001,-1,NULL,NULL,NULL,false,'1','{5,6}'),
(6,'y',7,3.5,'Infinity','2024-03-02','2024-03-05 12:00','31 days',true,'2','{7}'),
(7,NULL,2,10.00,3.5,'2024-03-31','2024-04-01 00:00','32 days',true,'3','{8}'),
(8,NULL,NULL,NULL,NULL,'2024-04-15','2024-04-02 00:00','2 mons',NULL,'4','{9}');
SELECT g, a, count(*), grouping(g), grouping(a, g) FROM w GROUP BY ROLLUP (g, a) ORDER BY g, a, 4, 5;
SELECT g, a, count(*), sum(b), grouping(g, a) FROM w GROUP BY CUBE (g, a) ORDER BY g, a, 5;
SELECT g, a, count(*) FROM w GROUP BY GROUPING SETS ((g), (a), ()) ORDER BY g, a, 3;
SELECT g, a, count(*) FROM w GROUP BY GROUPING SETS (g, ROLLUP (a, g), GROUPING SETS ((), (a)), CUBE(a)) ORDER BY g, a, 3;
SELECT x, sum(y) FROM (VALUES (1,2),(1,3),(2,5)) v(x,y) GROUP BY ROLLUP (x) ORDER BY x;
SELECT x, sum(y) FROM (VALUES (1,2),(1,3),(2,5)) v(x,y) WHERE false GROUP BY GROUPING SETS ((), (), (x)) ORDER BY x;
SELECT count(*) FROM w GROUP BY ();
SELECT g, count(*) FROM w GROUP BY g, ROLLUP (a), () ORDER BY 1, 2;
SELECT g, a, count(*) FROM w GROUP BY DISTINCT ROLLUP (g, a), ROLLUP (g, a) ORDER BY g, a, 3;
SELECT g, a, count(*) FROM w GROUP BY ALL ROLLUP (g, a), ROLLUP (g) ORDER BY g, a, 3;
SELECT g, sum(a) FROM w GROUP BY ROLLUP (g) HAVING grouping(g) = 0 ORDER BY g;
SELECT g, sum(a), rank() OVER (ORDER BY sum(a)), grouping(g) FROM w GROUP BY ROLLUP (g) ORDER BY g, 4;
SELECT grouping(id) FROM w;
SELECT grouping(b) FROM w GROUP BY g;
SELECT id, g, count(*) FROM w GROUP BY GROUPING SETS ((id), (id, g)) ORDER BY 1, 2;
SELECT id, a, count(*) FROM w GROUP BY ROLLUP (id) ORDER BY 1;
SELECT coalesce(g, '?') AS c, count(*) FROM w GROUP BY ROLLUP (coalesce(g, '?')) ORDER BY 1;
SELECT a + 1, count(*) FROM w GROUP BY ROLLUP ((a + 1)) ORDER BY 1;
SELECT a + 1, g, count(*) FROM w GROUP BY CUBE ((a + 1), (g)) ORDER BY 1, 2, 3;
SELECT g, (SELECT grouping(g)), count(*) FROM w GROUP BY ROLLUP (g) ORDER BY 1, 2;
SELECT * FROM (SELECT g, a, count(*) c FROM w GROUP BY ROLLUP (g, a)) s WHERE g = 'x' ORDER BY a;
SELECT * FROM (SELECT g, a, count(*) c FROM w GROUP BY ROLLUP (g, a)) s WHERE a = 3 ORDER BY g;
SELECT max(grouping(g)) FROM w GROUP BY g;
SELECT count(*) FROM w WHERE grouping(g) = 1;
SELECT sum(a) FILTER (WHERE count(*) > 1) FROM w;
SELECT ();
SELECT g FROM w GROUP BY CUBE (id,g,a,b,f,d,ts,i,ok,j,r,id+1,id+2);
SELECT count(*) FROM w GROUP BY CUBE (id,g,a,b,f,d), CUBE (id,g,a,b,f,d), CUBE(id);
SELECT DISTINCT g, grouping(g) FROM w GROUP BY ROLLUP (g) ORDER BY 1, 2;
-- What a key was computed from does not matter where it is NULL.
SELECT x, count(*) FROM (SELECT 'foo'::text AS x, a FROM w) t GROUP BY GROUPING SETS (a, x) HAVING x = 'foo' ORDER BY 1;
SELECT a, x || 'x' FROM (SELECT 'foo'::text AS x, a FROM w) t GROUP BY GROUPING SETS (a, x) ORDER BY 1, 2;
SELECT g AS one, g AS two, count(*) FROM w GROUP BY one, ROLLUP (two) ORDER BY 1, 2, 3;
-- Aggregates of the query around.
SELECT (SELECT max(id) FILTER (WHERE sum(a) > 0) FROM (VALUES (1)) v(k)) FROM w;
SELECT (SELECT max((SELECT i.a FROM w i WHERE i.id = o.id)) FILTER (WHERE o.id < 6)) FROM w o;
SELECT (SELECT sum(sum(o.a))) FROM w o;
SELECT nowhere(DISTINCT a) FROM w;
