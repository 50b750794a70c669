"""Where a pod goes on a fleet of GPUs, so that as little as possible of what is free becomes useless.

Every pod that fits somewhere is taken at once, and nothing is moved later, so the choice of the node is all there is. A node's free
GPUs are lost when its CPU or memory runs out first, when a shared device keeps a rest that nothing fits into, or when what is free is
of the wrong model or in too small a number for those who insist. `Prices` put a figure on each of these, learned from the `Demand`
seen so far, and a pod goes where the expected loss grows least:

- `stranding`: the GPUs of a node, or the rest of a device, that stay free when pods keep coming as they do until none fits any more;
- `cutting`: what a rest of a device is worth when devices are cut as in the best plan for all fractions asked for;
- `prices`: the two together, with a little for whole groups of devices and for sought-after models;
- `room`: what is free. `packer`: the choice. `moves`: what giving up "nothing is moved" adds.

`docs/gpu-placement.md` has the figures.
"""

from homeostat.gpu.placement.demand import Demand
from homeostat.gpu.placement.moves import Move, Residents, make_room
from homeostat.gpu.placement.packer import Packer
from homeostat.gpu.placement.prices import Prices
from homeostat.gpu.placement.room import Placement, Pod, Room, Sizes

__all__ = ["Demand", "Move", "Packer", "Placement", "Pod", "Prices", "Residents", "Room", "Sizes", "make_room"]
