"""Pictures, tables and files made of finished results; nothing here runs anything.

One figure, table or page in a module, to be imported from there: a terminal's table then does not
wait for matplotlib.
"""
