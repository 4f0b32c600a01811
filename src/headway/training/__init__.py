"""The one loop – optimiser, schedule, resume, distributed, log. There is no second loop anywhere."""
