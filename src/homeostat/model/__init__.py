"""What an object is, for whoever serves, stores, asks for or keeps one.

Nothing here does I/O or knows of the other rooms.

- `names`, `selectors`, `quantity`, `conditions`: the parts of an object that have rules of their own.
- `schema`: one node of a type, which validation, pruning, patches and server-side apply all read; `patterns` in it are
  RE2's.
- `kinds`: kinds declared by typed Python classes, and their schemas and definitions made from those.
- `errors`: refusals as Kubernetes words them, from one field's (`FieldError`) to a whole answer's (`ApiError`).
- `encoding`, `protocol`, `protobuf`: objects as bytes, and what client and server agree on beside them.
- `cel`: expressions that people write over objects, checked, compiled and stopped when they cost too much.
- `equality`, `clock`: when two values are the same; time and chance, handed in.

Every module is public under its own name and light to import: what is heavy (YAML, RE2, CEL) is imported where it is first
used.
"""
