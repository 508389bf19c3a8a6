"""Composite transactions: a component in Python, which takes part in the same roots as components in other languages.

```python
from cognate_composite import Component, Refused, never

stock = Component("stock", setup=["CREATE TABLE IF NOT EXISTS item (id int PRIMARY KEY, stock int NOT NULL)"])

@stock.service(item=lambda item: item)
def take(call, item: int):
    if call.execute("UPDATE item SET stock = stock - 1 WHERE id = %s AND stock > 0", [item]).rowcount == 0:
        raise Refused("sold out")
    call.undo(item)

@take.undo
def put_back(undo, item: int):
    undo.execute("UPDATE item SET stock = stock + 1 WHERE id = %s", [item])

stock.conflicts(never("take", "take"))
stock.main()
```

Floors, from the ground: `names`, `matrix`, `locks`, `root`, `participant` (a component's part in everything, pure);
`problem`, `shape`; `journal`, `database`, `slots` (what is remembered); `peers`; `service` (what a developer has);
`node`, `run` (effects are done); `openapi`, `server`, `component`.
"""

from .component import Component, Running, StartError, read_tokens
from .matrix import ALWAYS, NEVER, SAME_ITEM, always, never, same_item
from .problem import Problem, Refused
from .server import Tokens
from .service import Call, Service, Undo

__all__ = [
    "ALWAYS",
    "NEVER",
    "SAME_ITEM",
    "Call",
    "Component",
    "Problem",
    "Refused",
    "Running",
    "Service",
    "StartError",
    "Tokens",
    "Undo",
    "always",
    "never",
    "read_tokens",
    "same_item",
]
