"""Write a day of input for the shop: customers as CSV, orders as NDJSON, order lines as Parquet."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_day(
    folder: Path, day: str, customers: list[tuple[str, str, str]], orders: list[tuple[str, str, str, int]]
) -> None:
    """Write the files of a day below `folder`.

    A customer is an id, a name and an email. An order is its id, a customer, the product and the quantity.
    """
    places = {name: folder / "in" / name for name in ("customers", "orders", "lines")}
    places["orders"] /= f"day={day}"
    places["lines"] /= f"day={day}"
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    rows = ["id,name,email", *(",".join(customer) for customer in customers)]
    (places["customers"] / f"{day}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = [json.dumps({"order_id": order[0], "customer": order[1]}) for order in orders]
    (places["orders"] / "part-0.ndjson").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    table = pa.table(
        {
            "order_id": pa.array([order[0] for order in orders], pa.string()),
            "sku": pa.array([order[2] for order in orders], pa.string()),
            "quantity": pa.array([order[3] for order in orders], pa.int32()),
        }
    )
    pq.write_table(table, places["lines"] / "part-0.parquet")


if __name__ == "__main__":
    write_day(
        Path(sys.argv[1]),
        "2026-05-01",
        [("1", "Ana", "ANA@example.org"), ("2", "Bo", ""), ("3", "Cy", "nobody")],
        [("o1", "1", "tea", 2), ("o2", "2", "mug", 1)],
    )
