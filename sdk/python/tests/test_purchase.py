"""Purchases over components of which some are Rust's and some are Python's: each happens wholly and once, or not at all."""

import http.server
import threading
import time
import unittest

from support import NAMES, Fleet

CLIENTS = 5
KILLS = 3


class Purchase(unittest.TestCase):
    def fleet(self, *python: str) -> Fleet:
        fleet = Fleet(python)
        self.addCleanup(fleet.stop)
        return fleet

    def check_purchase_and_refusals(self, fleet: Fleet) -> None:
        key, order = {"Idempotency-Key": "1"}, {"item": 7, "customer": 3}
        status, receipt = fleet.post("shop", "/services/buy", order, key)
        self.assertEqual((status, receipt["item"], receipt["customer"], receipt["price"]), (200, 7, 3, 10))
        self.assertEqual(fleet.post("shop", "/services/buy", order, key), (200, receipt))
        self.assertEqual(fleet.post("shop", "/services/buy", {"item": 8, "customer": 3}, key)[0], 422)
        # Whoever refuses, the others are as they were.
        for refused in ({"item": 7, "customer": 101}, {"item": 101, "customer": 3}):
            status, problem = fleet.post("shop", "/services/buy", refused)
            self.assertEqual((status, problem["reason"]), (400, "failed"), problem)
        self.assertEqual(fleet.read("stock", "count", {"item": 7}), 999)
        self.assertEqual(fleet.read("payment", "balance", 3), 9990)
        self.assertEqual(fleet.read("shop", "sold", {"item": 7}), 1)
        fleet.settled()

    def test_a_stock_in_python_between_components_in_rust(self) -> None:
        self.check_purchase_and_refusals(self.fleet("stock"))

    def test_a_shop_in_python_is_the_parent_of_components_in_rust(self) -> None:
        self.check_purchase_and_refusals(self.fleet("shop"))

    def test_all_three_in_python_on_one_database(self) -> None:
        self.check_purchase_and_refusals(self.fleet(*NAMES))

    def test_a_component_that_is_down_leaves_nothing_behind(self) -> None:
        fleet = self.fleet("shop")
        fleet.kill("payment")
        headers = {"Cognate-Deadline-Ms": "1500"}
        status, problem = fleet.post("shop", "/services/buy", {"item": 1, "customer": 1}, headers)
        self.assertEqual((status, problem["reason"]), (503, "away"), problem)
        fleet.start("payment")
        fleet.settled()
        self.assertEqual(fleet.read("stock", "count", {"item": 1}), 1000)

    def test_a_trace_is_passed_on_and_what_is_in_between_is_away(self) -> None:
        fleet, seen = self.fleet("shop"), []

        class Between(http.server.BaseHTTPRequestHandler):
            """What a proxy says of a component that is down."""

            def do_POST(self) -> None:
                seen.append((self.path, self.headers))
                self.send_response(502)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        fleet.kill("stock")
        between = http.server.ThreadingHTTPServer(("127.0.0.1", fleet.ports["stock"]), Between)
        self.addCleanup(between.server_close)
        threading.Thread(target=between.serve_forever, daemon=True).start()
        self.addCleanup(between.shutdown)
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        for trace, passed_on in [(parent, parent), ("none", None)]:
            seen.clear()
            headers = {"traceparent": trace, "Cognate-Deadline-Ms": "5000"}
            status, problem = fleet.post("shop", "/services/buy", {"item": 1, "customer": 1}, headers)
            self.assertEqual((status, problem["reason"]), (503, "away"), problem)
            called = [headers for path, headers in seen if path == "/services/take"]
            self.assertEqual([headers["traceparent"] for headers in called], [passed_on])
            self.assertTrue(0 < int(called[0]["Cognate-Deadline-Ms"]) <= 5000)

    def kill_in_the_middle(self, fleet: Fleet, victim: str) -> None:
        is_over, bought, failures = threading.Event(), [0] * CLIENTS, []

        def buy(client: int) -> None:
            for nth in range(10_000):
                if is_over.is_set():
                    return
                order = {"item": 1 + nth % 7, "customer": 1 + client}
                headers = {"Idempotency-Key": f"{client}/{nth}", "Cognate-Deadline-Ms": "3000"}
                while True:
                    try:
                        status, answer = fleet.post("shop", "/services/buy", order, headers)
                    except OSError:
                        status = 503
                    if status == 200:
                        bought[client] += 1
                        break
                    if status not in (409, 503, 504):
                        failures.append((status, answer))
                        return
                    # Somebody is down, or was: the same request again.
                    time.sleep(0.05)

        clients = [threading.Thread(target=buy, args=(client,)) for client in range(CLIENTS)]
        for client in clients:
            client.start()
        for kill in range(KILLS):
            time.sleep(0.8 + 0.13 * kill)
            fleet.kill(victim)
            fleet.start(victim)
        time.sleep(0.5)
        is_over.set()
        for client in clients:
            client.join(60)
            self.assertFalse(client.is_alive(), "a purchase does not end")
        self.assertEqual(failures, [])
        fleet.settled()
        total = sum(bought)
        items, customers = range(1, 8), range(1, CLIENTS + 1)
        sold = sum(fleet.read("shop", "sold", {"item": item}) for item in items)
        taken = sum(1000 - fleet.read("stock", "count", {"item": item}) for item in items)
        paid = sum(10_000 - fleet.read("payment", "balance", customer) for customer in customers)
        print(f"{total} purchases through {KILLS} kills of {victim}")
        self.assertGreater(total, 0)
        self.assertEqual((sold, taken, paid), (total, total, 10 * total))

    def test_kills_of_a_stock_in_python_leave_nothing_half_done(self) -> None:
        self.kill_in_the_middle(self.fleet("stock"), "stock")

    def test_kills_of_a_shop_in_python_leave_nothing_half_done(self) -> None:
        self.kill_in_the_middle(self.fleet("shop"), "shop")


if __name__ == "__main__":
    unittest.main()
