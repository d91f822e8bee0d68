"""How the pages of this folder, and the docstrings of the public names, become a site.

Build it with `sphinx-build -W --keep-going docs site`; a link that leads nowhere is an error.
"""

import ampsim

project = "ampsim"
author = "the ampsim authors"
release = ampsim.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "alabaster"
html_static_path = ["_static"]  # its custom.css
pygments_style = "xcode"  # readable on grey, where alabaster's own has a contrast of 3.2
html_title = "ampsim"
html_show_copyright = False
html_theme_options = {"page_width": "70rem", "body_max_width": "none"}
python_maximum_signature_line_length = 88  # a longer one has a line for each argument

myst_heading_anchors = 3  # so that links to headings are checked too
default_role = "code"  # what docstrings have between single backticks

add_module_names = False
autodoc_default_options = {"exclude-members": "model_config"}  # pydantic's own
autodoc_member_order = "groupwise"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
