"""Many questions: what binds, what each thing would buy, and which hardware an answer needs.

Each question is a file that one reads first: `explore` (who is first where), `search` (what no
other point beats), `whatif` (what each thing would buy) and `solve` (from where on a condition
holds). All go the same way: keys and values become axes, and a point of these a model, a cluster
and schedules (`axes`); the rows of a point are timed, or learn (`making`); what came of them is a
table, sentences, and a folder with a page (`finding`). Beside a question stands what it alone
needs: of maps `cells` and `predicting`; of searches `trials` and `sampling`; of what-if `changes`;
of solve `crossings`, and of both it and searches `condition`.
"""
