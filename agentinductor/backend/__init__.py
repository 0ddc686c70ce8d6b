"""The backend: from a Dynamo graph to Inductor's compiled function, regions with a kernel replaced.

Reading order: entry (one graph), graph_pass (what happens to it), partition (which nodes), dims and lower (nodes to a
definition), rewrite and operators (a solution in their place), report and plan, inductor (the seam), op_support and kinds
(tables). It is handed a resolver and never imports agents, validation or bench.
"""
