"""What processes on other nodes of a Ray cluster write comes to the driver's store.

    node A: <dir>/<project>/<run>/ ─┐
    node B: <dir>/<project>/<run>/ ─┼─ Ray ─► a process at home ─► <root>/<project>/<run>/
    node C: ...                    ─┘

One process at home, the driver's side, fetches (`process`): it has an actor on each node (`node`),
asks it for what is new, and writes that at the same offsets (`source`). It is fetched from home,
because then all that must be remembered lies at home: what is there already is known from the files
themselves. So this process and its actors can be killed at any time, and are simply started again.

Only whole frames are written at home while a log grows. A log on a node is removed when its writer
has ended it and all of it lies at home; it is sealed there. Training processes take no part in any
of this: they leave a note that they write (`home`), and see to it that the process runs.
"""
