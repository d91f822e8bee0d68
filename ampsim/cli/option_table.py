"""The help of each option and argument of the commands, under its heading.

`run.target` is that of one command, where others have one of the same name. Those of methods stand
in their own files (`ampsim.cli.methods`).
"""

from __future__ import annotations

from typing import Final

from ampsim.cli import completion
from ampsim.cli.methods import OPTIONS, Option

DEVICE: Final = "tflops-1"
ALL_SCHEDULES: Final = "sequential,pipeline,amp"
OF_PROGRAMS: Final = "dataflow,out-of-graph"
SEVERAL: Final = "pipeline,amp"
"""Schedules of what compares."""

ONE: Final = "amp"
"""Schedule of what asks about each by itself."""

TRIALS: Final = 8
"""Learning rates that a row tries unless told otherwise; a test compares it with the tuner's."""

REPEATS: Final = "8 of explore, 6 of solve, 3 of search and whatif"
"""Seeds of a run; a test compares them with the library's."""

CHARTED: Final = 2000
"""Instances of a run that is only drawn (chosen: enough for a window's worth, done in a moment)."""

_USUAL: Final = f"[default: {ALL_SCHEDULES}; of a model that is a program only {OF_PROGRAMS}]"
_SCHEDULES: Final = completion.several_of(*completion.SCHEDULES)
_OF_RUN: Final = "A folder of `ampsim run`."

TABLE: Final[dict[str, dict[str, Option]]] = {
    "Arguments": {
        "model": Option(
            "MODEL", "A shipped model's name, or a .py file of your own.", completion.models
        ),
        "forecast.model": Option(
            "MODEL",
            "A shipped model's name, or a .py file of your own.  [default: a small rnn, of lists "
            "of one or two digits; the paper's own is `rnn`]",
            completion.models,
        ),
        "search.model": Option(
            "MODEL|RECIPE",
            "A shipped model's name, a .py file of your own, or a recipe.toml, or its folder, with "
            'a table "search".',
            completion.models,
        ),
        "gantt.source": Option(
            "MODEL|RUN_DIR",
            "A model to run for a moment, or a folder of `ampsim run`.",
            completion.models,
        ),
        "import_.source": Option(
            "FILE.py:NAME",
            "A function of your file, without arguments, that returns ampsim.from_torch(…).",
        ),
        "run_a": Option("RUN_A", _OF_RUN),
        "run_b": Option("RUN_B", _OF_RUN),
        "devices.name": Option(
            "NAME|FILE",
            "A shipped name, or a device or cluster file; or the word import.",
            completion.devices,
        ),
        "devices.file": Option(
            "FILE",
            "After import: a system file of Calculon or SimuMax (.json), to write a device file of "
            "ours from.",
        ),
        "models.name": Option(
            "NAME|FILE", "A shipped name, or a .py file of your own.", completion.models
        ),
        "data.name": Option(
            "NAME", "One data set; all unless given.", completion.one_of(*completion.DATASETS)
        ),
        "what": Option(
            "table|machine",
            "table: fit a device to published throughputs. machine: measure this one.",
            shows_default=False,
        ),
        "calibrate.file": Option(
            "FILE",
            "After table: the published rows and the parameters to fit (.toml).",
            shows_default=False,
        ),
        "names": Option(
            "NAME|DIR",
            "Recipes of the folder reports/ here, or folders with a recipe.toml.",
            completion.recipes,
        ),
        "files": Option(
            "FILE",
            "Device and cluster files (.toml), placements (.toml, NODE = WORKER), recipes "
            "(recipe.toml, or its folder) and models (.py).",
        ),
    },
    "Question": {
        "over": Option(
            "KEY=VALUES",
            "What varies, and over which values: KEY=A,B,... or KEY=A..B[:log], such as "
            "latency_s=1e-7..1e-4:log, device.flop_per_s=1e11,1e12, workers=2,4, "
            "max_active_keys=1..16 or model.hidden=64,128; repeat it for another key.",
            names=("--for",),
        ),
        "solve.over": Option(
            "KEY=A..B",
            "What varies, and from where to where: latency_s, bandwidth_bytes_per_s, workers, "
            "device.NUMBER such as device.flop_per_s, host.NUMBER, ports.NUMBER, model.OPTION, or "
            "an option of a schedule.",
            names=("--for",),
        ),
        "until": Option(
            "CONDITION",
            "Until when, such as 'time_s <= 0.5', or of two schedules "
            "'time_s(pipeline:4) >= 2 * time_s(amp:4)'.",
        ),
        "learn": Option(
            "N",
            "So many things, those that matter most, are learned again at twice their speed, where "
            "that changes what is learned.",
        ),
        "points": Option("N", "Points of each range."),
        "minimise": Option(
            "COLUMN,...",
            "What is minimised: time_s, epochs, dollars, joules (to the target), peak_bytes, "
            "epoch_s.",
        ),
        "subject_to": Option(
            "CONDITION", "What must hold, such as 'peak_bytes <= 16e9'; may be repeated."
        ),
        "sampler": Option(None, "What proposes points."),
        "in_flight": Option("N", "Points asked for before any of them is told."),
        "prunes": Option(
            None,
            "Leave a point as soon as what its runs have spent is dominated.",
            names=("--prune/--no-prune",),
        ),
        "against_random": Option(
            None, "Try as many points at random, too, and say how both compare."
        ),
    },
    "Model and data": {
        "settings": Option(
            "KEY=VALUE",
            "Set an option of the model; may be repeated. `ampsim models MODEL` lists them.",
            names=("--set",),
        ),
        "data": Option(
            "DIR",
            "Folder of the data sets, for a model that reads one.  "
            "[default: $AMPSIM_DATA, or the cache folder]",
        ),
        "instances": Option("N", "Training items to use.  [default: all]"),
        "gantt.instances": Option("N", f"Training items to use.  [default: {CHARTED}, or all]"),
    },
    "Hardware": {
        "device": Option(
            "NAME|FILE",
            "A shipped device's name, a device or cluster file (.toml), or groups such as "
            f"p100:8,cpu-core:1.  [default: {DEVICE}]",
            completion.devices,
        ),
        "workers": Option("N", "How many workers.  [default: 16, or as the cluster file says]"),
        "latency_s": Option(
            "X",
            "Seconds from sending to arrival of a message between workers.  "
            "[default: 0, or the file's]",
        ),
        "bandwidth_bytes_per_s": Option(
            "X", "Rate at which a message enters a link.  [default: infinite, or the file's]"
        ),
        "topology": Option(
            "KIND",
            "Edges between workers, which messages share in fair shares, each of that latency and "
            "bandwidth: fully-connected, ring, mesh:4x4, torus:4x4, star, fat-tree:4 or "
            "hierarchy:8x2, with numbers of your own.  [default: a link for each pair, or the "
            "file's]",
            completion.one_of(*completion.TOPOLOGIES),
        ),
        "placement": Option(
            "NAME|FILE",
            "Which worker hosts which node: paper, balanced, k-hop (3-hop, ...), "
            "communication-aware, search, or a .toml file of lines NODE = WORKER.  [default: "
            "paper, with a line where another is faster]",
            completion.placements,
        ),
        "gantt.placement": Option("NAME|FILE", "As in forecast.", completion.placements),
    },
    "Schedule": {
        "schedule": Option(
            "NAME,...",
            "Schedules that are compared, or asked about one by one.  "
            f"[default: {SEVERAL} of explore and search, {ONE} of whatif and solve]",
            _SCHEDULES,
        ),
        "forecast.schedule": Option("NAME,...", f"Schedules, one row each.  {_USUAL}", _SCHEDULES),
        "gantt.schedule": Option(
            "NAME,...", f"Several are drawn above each other.  {_USUAL}", _SCHEDULES
        ),
        "run.schedule": Option(
            "NAME",
            "The one schedule to run.  [default: amp; of a model that is a program only dataflow]",
            completion.one_of(*completion.SCHEDULES),
        ),
    },
    "Solver": {},
    "Program": {},
    "Budget, repeats and rates": {
        "budget": Option("TIME", "End after this time, such as 60s, 30m or 2h.  [default: none]"),
        "forecast.budget": Option(
            "TIME",
            "Tune all rows alike, then run seeds until there is an answer, in so much time of two "
            "processors, counted in work: 60s, 10m, 2h.  [default: 60s, unless runs or tuning are "
            "chosen by the options below]",
        ),
        "quick": Option(
            None, "Run each schedule once, as it is; that ranks nothing.", shows_default=False
        ),
        "repeats": Option(
            "N", f"Seeds of each run that learns, or, in solve, varies.  [default: {REPEATS}]"
        ),
        "forecast.repeats": Option(
            "N",
            "Runs of each schedule, with one seed after the other; nothing is tuned without "
            "--budget or --tune.",
        ),
        "sure": Option(
            "X",
            "Go on with more runs of each schedule until it is this sure which is first, 0.9 is "
            "90 %, or --max-repeats are made.",
        ),
        "explore.sure": Option(
            "X", "End where at each point the predicted winner is this sure, 0.9 is 90 %."
        ),
        "max_repeats": Option("N", "Runs of each schedule at most, with --sure.  [default: 40]"),
        "scale_rate": Option(
            None,
            "How a schedule's learning rate grows with the gradients of which its updates take "
            "the mean.  [default: linear for sgd, momentum, nesterov and lars, sqrt for adam and "
            "adagrad]",
        ),
        "tune": Option(
            None,
            "Try learning rates for each schedule, as many for each, before they are compared "
            "with the best of each; with --no-tune as they are.",
            shows_default=False,
        ),
        "trials": Option(
            "N", f"Learning rates that each schedule tries; tunes.  [default: {TRIALS}]"
        ),
        "search.trials": Option("N", "Points to try."),
    },
    "Run": {
        "target": Option(
            "X",
            "Validation accuracy to reach, 0.97 is 97 %, or error, in the model's unit.  "
            "[default: as the model file says]",
        ),
        "run.target": Option("X", "End after the epoch that reaches it."),
        "max_epochs": Option("N", "End a run that has not reached the target by then."),
        "epochs": Option("N", "Passes over the training data."),
        "validate_every": Option(
            "N",
            "Validate also within an epoch, after so many training items: what is in flight "
            "finishes first, and validation takes its time; under a solver nothing stops.  "
            "[default: at the end of an epoch]",
        ),
        "seed": Option("N", "Of data, first weights, order and placement."),
        "gantt.seed": Option("N", "Of everything."),
        "mode": Option(None, "Compute everything, or times only: sleep has no accuracy."),
        "gantt.mode": Option(None, "As in forecast."),
        "clock": Option(
            None,
            "Jump from event to event, or really wait as the devices would; a terminal shows what "
            "each worker does meanwhile.",
        ),
        "stretch": Option(
            "X",
            "Wall seconds for each virtual second, with --clock wall; 1000 makes a microsecond a "
            "millisecond.  [default: 1]",
        ),
        "jobs": Option(
            "N",
            "Runs to make at a time, each on a core of its own.  [default: as many as cores]",
            names=("--jobs", "-j"),
        ),
        "executor": Option(
            "dask:FILE|dask:ADDRESS|dask",
            "Make runs on the workers of a Dask cluster, by the file or the address of its "
            "scheduler; dask alone reads $DASK_SCHEDULER_ADDRESS.  [default: processes here, see "
            "--jobs]",
        ),
        "run_limit": Option(
            "TIME", "End a run that takes longer, such as 10m; the others go on.  [default: none]"
        ),
    },
    "Output": {
        "out": Option("DIR", "Folder for what is written, if not the usual one."),
        "gantt.out": Option(
            "FILE",
            "Picture .png, .svg, .pdf; page to zoom in .html; trace for Perfetto .json; folder of "
            "profiles for HTA .kineto.",
        ),
        "devices.out": Option(
            "DIR", "Where import writes the device file.  [default: this folder]"
        ),
        "calibrate.out": Option(
            "DIR",
            "Folder for device file and points, and after table for page and figure.  "
            "[default: calibration-NAME]",
        ),
        "report.out": Option(
            "DIR",
            "Write to DIR/NAME, instead of into the recipe's folder; the reports to check or "
            "redraw lie there, too.",
        ),
        "import_.out": Option("FILE.py", "Where to write; arrays go to FILE.npz."),
        "json": Option(
            "FILE|-",
            "Write one JSON object; - gives it alone on standard output. Unknown is null.",
        ),
        "columns": Option(
            "all|NAME,...",
            "Columns of the printed table, by their names in forecast.csv.  "
            "[default: the answer's]",
            completion.columns,
        ),
        "window": Option(
            "START:END",
            "What to show: virtual time, such as 0:2e-5 (seconds) or 0:20us.  [default: the first "
            "few instances]",
        ),
        "quiet": Option(None, "Show no progress on standard error.", names=("--quiet", "-q")),
        "traceback": Option(
            None,
            "When something fails, show the whole traceback, with the lines of your own model.",
            names=("--traceback",),
        ),
    },
    "Options": {
        "graph": Option("FILE", "Write the graph for Graphviz, which draws it: .dot."),
        "rounds": Option(
            "N", "After machine: rounds, of which a point is the lower quartile.  [default: 9]"
        ),
        "download": Option(
            None, "Fetch what is missing first, each file by its hash.", names=("--download",)
        ),
        "list_only": Option(None, "List the recipes.", names=("--list",)),
        "check": Option(
            None,
            "Say whether the reports still follow from recipe and code: by the hashes in their "
            "manifests, by tiny runs of rows and programs, and by drawing page, tables and figures "
            "again in a temporary folder. All recipes unless some are named.",
            names=("--check",),
        ),
        "rerun": Option(
            None,
            "With --check: make every run again, and compare all that is drawn of it.",
            names=("--rerun",),
        ),
        "redraw": Option(
            None,
            "Write page, tables, figures and outlines again from outlines.json beside the report, "
            "without a run or data files; of a program with a WITNESS from its tables. Gantt "
            "charts stay as they are. All recipes unless some are named.",
            names=("--redraw",),
        ),
    },
}
"""By heading and name; a command with few options has them all in one list."""

for _name, _one in OPTIONS.items():
    TABLE[_one.heading][_name] = _one

PANELS: Final = {
    heading: tuple(dict.fromkeys(name.rpartition(".")[2] for name in of))
    for heading, of in TABLE.items()
    if heading not in ("Arguments", "Options")
}
"""Under which heading help lists an option, where a command has too many for one list."""

EVERY: Final = {name: one for of in TABLE.values() for name, one in of.items()}
"""All of the table, by name alone."""
