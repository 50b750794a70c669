"""CEL, the Common Expression Language: what people write where a rule, a guard or a health check needs a question asked.

Parsing is Google's cel-cpp (through cel-expr-python); types, cost and evaluation are here, because a schema's types, an
exact count of cost and an end to hostile expressions are what that library does not offer, and because evaluating
straight on decoded JSON takes a microsecond an expression. Nothing heavy is imported before the first one is compiled.

- `expression`: the way in for guards, health and invariants: an expression over named JSON values, compiled once.
- `syntax` → `check` → `evaluate`: from text to a tree, to a typed tree, to closures that count what they cost (`steps`).
- `types`, `values`, `typed`: what a value may be, how it behaves, and how JSON becomes one.
- `overloads`: the table of functions; `standard`, `strings`, `lists`, `times`, `formats`, `addresses`, `versions`, `authorizers` fill it.

What turns a schema into types and validates objects by the rules of their kinds is the API's, in `api.cel`.
"""
