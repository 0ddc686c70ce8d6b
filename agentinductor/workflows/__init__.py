"""What people do with a model: compile it, explain it, prewarm it, bench it.

Reading order: compile (settings to a compiled graph), harvest (a model's regions without generating code), explain, prewarm,
bench. May import every layer below; the command line and api.py come through here.
"""
