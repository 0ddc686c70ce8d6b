"""The command line: `agentinductor`.

Reading order: main (the arguments, and which module runs which command), models (explain, prewarm, bench), kernels (list),
show, judge (verify, submit), requests, cache, doctor, script (the stand-alone reproduction of one kernel), display.

main.py imports neither torch nor any command, so that --help is immediate. May import every other package; only api.py
knows the backend.
"""
