"""Model files whose author made a mistake: the right one with one or two of its lines replaced."""

from __future__ import annotations

from mutation.bases import MODEL
from mutation.case import Call, Command, Function, Place

_RAISED = (
    *("ValueError('wrong')", "KeyError('key')", "OSError(5, 'broken')", "OSError('no number')"),
    *("BrokenPipeError(32, 'pipe')", "ConnectionError('line')", "FileNotFoundError(2, 'no', 'f')"),
    *("SystemExit", "SystemExit(0)", "SystemExit('bye')", "GeneratorExit", "StopIteration(1)"),
    *("MemoryError()", "RecursionError('deep')", "AssertionError", "NotImplementedError()"),
    *("UnicodeDecodeError('utf-8', b'x', 0, 1, 'bad')", "EOFError()", "TimeoutError('late')"),
    *(
        "ampsim.AmpsimError('my own')",
        "Warning('x')",
        "ZeroDivisionError()",
        "BaseException('base')",
    ),
    *("ValueError('\\x1b[31mred\\n\\u202etwo')", "ExceptionGroup('many', [ValueError('one')])"),
    *("type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()", "ValueError('x' * 5000)"),
    *(
        "IsADirectoryError(21, 'is', 'x')",
        "StopAsyncIteration()",
        "TypeError(None)",
        "IndexError(-1)",
    ),
    *(
        "KeyError('\\x1b[2J')",
        "ImportError('no module', name='x')",
        "LookupError()",
        "ArithmeticError(1)",
    ),
)

_VALUES = (
    *("None", "0", "-1", "1", "True", "1.5", "float('nan')", "float('inf')"),
    *("''", "'text'", "'\\x1b[31mred\\x07'", "'a\\nb'", "'x' * 300", "'../up/x'", "b'bytes'", "[]"),
    *(
        "[None]",
        "()",
        "(1, 2)",
        "{}",
        "{'a': 1}",
        "set()",
        "object()",
        "int",
        "lambda *a, **k: None",
    ),
    *(
        "np.zeros(0)",
        "np.zeros((1, 2))",
        "np.zeros((2, 3, 4))",
        "np.float32('nan')",
        "np.array('x')",
    ),
    *(
        "np.full((1, 2), np.nan, 'float32')",
        "np.array([[1, 2]])",
        "np.array([None, None])",
        "iter([])",
    ),
    *(
        "np.full((1, 2), 1e38, 'float32')",
        "(x for x in 'ab')",
        "ampsim",
        "np.int64(1)",
        "np.array([5])",
    ),
    *(
        "np.array([-1])",
        "np.array([0.5])",
        "np.zeros((1, 2), complex)",
        "range(3)",
        "np.array([7, 7])",
    ),
    "np.ma.masked_array([[1.0, 2.0]], [[True, False]])",
)

_HUGE = ("2**31", "2**63", "10**30", "-(10**400)")

_EXPRESSIONS = (
    *('name="toy"', "config=config,", "make_graph=lambda: network(config)", "pump=pump"),
    *(
        "make_data=lambda seed, count: Rows(8 if count is None else min(count, 8))",
        'dtype="float32"',
    ),
    *("optimizer=sgd(config.rate)", "target=0.9", "width: int = 3", "rate: float = 0.1"),
    *('name = "rows"', 'description = "two numbers; which is larger?"'),
)
"""Parts of the model of which what stands behind `=` is replaced."""

_STATEMENTS = (
    'return self.train_count if split == "train" else 2',
    "return self.count(split)",
    "return [(0, State(instance), batch.values), (1, State(instance), batch.labels)]",
    "yield Batch(values, np.argmax(values, axis=1))",
    "return len(self.labels)",
    "return super().forward(port, state, payload)",
    "return super().backward(port, state, payload)",
    "return graph",
    'graph = Graph("toy")',
    'graph.end(SoftmaxCrossEntropy("loss"), logits, labels)',
    "random = np.random.default_rng([seed, epoch])",
    "self.train_count = train_count",
)
"""Whole lines of it, behind which comes another, or which give way."""

_OTHERS = (
    ("@dataclass(frozen=True)\n", ""),
    ("class Config:", "class Other:"),
    ("class Config:", "class Config(NamedTuple):"),
    ("def build(config):", "def built(config):"),
    ("def build(config):", "async def build(config):"),
    ("def build(config):", "def build():"),
    ("def build(config):", "def build(config, more):"),
    ("    return ampsim.Model(", "    yield ampsim.Model("),
    ("    return ampsim.Model(", "    return 1, ampsim.Model("),
    ("    return ampsim.Model(", "    return lambda: ampsim.Model("),
    ("class State(NamedTuple):\n    instance: int", "State = int"),
    ("class State(NamedTuple):\n    instance: int", "State = str"),
    ("class State(NamedTuple):\n    instance: int", "State = lambda instance: [instance]"),
    ("class State(NamedTuple):\n    instance: int", "State = lambda instance: (instance,)"),
    ("class State(NamedTuple):\n    instance: int", "class State(NamedTuple):\n    step: list"),
    ("State(instance), batch.values", "State(0), batch.values"),
    ("State(instance), batch.values", "State('a'), batch.values"),
    ("State(instance), batch.values", "State([]), batch.values"),
    ("(1, State(instance), batch.labels)", "(2, State(instance), batch.labels)"),
    ("(1, State(instance), batch.labels)", "(-1, State(instance), batch.labels)"),
    ("(1, State(instance), batch.labels)", "(0, State(instance), batch.labels)"),
    ("(1, State(instance), batch.labels)", "('labels', State(instance), batch.labels)"),
    (", (1, State(instance), batch.labels)", ""),
    (", (1, State(instance), batch.labels)", ", (1, State(instance))"),
    ("batch.values), (1,", "batch.values[:, :1]), (1,"),
    ("batch.values), (1,", "batch.values * np.nan), (1,"),
    ("batch.values), (1,", "batch.values * np.float32(1e38)), (1,"),
    ("batch.values), (1,", "batch.values.astype('float64')), (1,"),
    ("batch.values), (1,", "batch.values.astype(object)), (1,"),
    ("batch.values), (1,", "batch.values.astype(str)), (1,"),
    ("batch.values), (1,", "batch.values.tolist()), (1,"),
    ("batch.labels)]", "batch.labels + 9)]"),
    ("batch.labels)]", "batch.labels - 9)]"),
    ("batch.labels)]", "batch.labels.astype(float))]"),
    ("batch.labels)]", "np.concatenate([batch.labels] * 2))]"),
    ("for _ in range(self.count(split)):", "for _ in range(self.count(split) + 1):"),
    ("for _ in range(self.count(split)):", "for _ in range(self.count(split) - 1):"),
    ("for _ in range(self.count(split)):", "for _ in ():"),
    ("standard_normal((1, 2))", "standard_normal((0, 2))"),
    ("standard_normal((1, 2))", "standard_normal((1, 3))"),
    ("standard_normal((1, 2))", "standard_normal(2)"),
    ("standard_normal((1, 2))", "standard_normal((1, 2), 'float16')"),
    ("def batches(self, split, *, epoch, seed):", "def batches(self, split):"),
    ("    def batch_count(self, split):\n        return self.count(split)\n", ""),
    ("def count(self, split):", "def counted(self, split):"),
    ('"first", 2, config.width', '"second", 2, config.width'),
    ('"first", 2, config.width', '"first", 3, config.width'),
    ('"first", 2, config.width', '"first", 2, 0'),
    ('"first", 2, config.width', '"first", 2, -1'),
    ('"first", 2, config.width', '"first", 2, "3"'),
    ('"first", 2, config.width', '"\\x1b[31mfirst\\n", 2, config.width'),
    ('"first", 2, config.width', '"", 2, config.width'),
    ('"first", 2, config.width', "None, 2, config.width"),
    ('"first", 2, config.width', '"controller", 2, config.width'),
    ('ReLU("relu"), hidden', 'ReLU("relu"), values'),
    ('ReLU("relu"), hidden', 'ReLU("relu"), labels'),
    ('ReLU("relu"), hidden', 'ReLU("relu")'),
    ('ReLU("relu"), hidden', 'ReLU("relu"), None'),
    ('ReLU("relu"), hidden', 'ReLU("relu"), hidden, hidden'),
    ('ReLU("relu"), hidden', "ReLU, hidden"),
    ('("loss"), logits, labels', '("loss"), labels, logits'),
    ('("loss"), logits, labels', '("loss"), logits'),
    ('    graph.end(SoftmaxCrossEntropy("loss"), logits, labels)\n', ""),
    ('values=("rows", 2)', 'values=("rows", 3)'),
    ('values=("rows", 2)', "values=2"),
    ('values=("rows", 2)', "values=(None, None)"),
    ('values=("rows", 2)', 'values=("rows", -2)'),
    ("sgd(config.rate)", "sgd(-1)"),
    ("sgd(config.rate)", "sgd(float('nan'))"),
    ("sgd(config.rate)", "sgd(1e30)"),
    ("sgd(config.rate)", "sgd(lambda epoch: None)"),
    ("sgd(config.rate)", "sgd(lambda epoch: float('nan'))"),
    ("sgd(config.rate)", "sgd"),
    ("target=0.9", "target=0.9, metric='error'"),
    ("target=0.9", "metric='error', error_scale=lambda data: None"),
    ("target=0.9", "target=0.9, replicas=0"),
    ("target=0.9", "target=0.9, min_update_interval=0"),
    ("target=0.9", "target=0.9, node_update_intervals={'none': 2}"),
    ("target=0.9", "target=0.9, node_update_intervals=3"),
    ("target=0.9", "target=0.9, unknown=1"),
    ("lambda seed, count: Rows", "lambda seed, count: 1 // (1 - seed) and Rows"),
    ("width: int = 3", "width: 'Nowhere' = 3"),
    ("width: int = 3", "width: int"),
    ("width: int = 3", "width: np.ndarray = None"),
    ("width: int = 3", "width: int = 'three'"),
    ("import ampsim\n", "import ampsim, no_such_module\n"),
    ("import ampsim\n", "import ampsim\nfrom . import sibling\n"),
    ("import ampsim\n", "import ampsim\nprint('hello')\n"),
    ("from typing", "from __future__ import annotations\nfrom typing"),
)


def wrong_model(place: Place) -> str:
    """The text of a wrong model."""
    random, text = place.random, MODEL
    for _ in range(random.choice((1, 1, 1, 2))):
        text = _changed(text, place)
    return text


def _changed(text: str, place: Place) -> str:
    random = place.random
    kind = random.randrange(10)
    if kind < 4:
        old, new = random.choice(_OTHERS)
        return text.replace(old, new)
    if kind < 6:
        part = random.choice(_EXPRESSIONS)
        name = part.partition("=")[0]
        end = "," if part.endswith(",") else ""
        return text.replace(part, f"{name}= {random.choice((*_VALUES, *_HUGE))}{end}")
    line = random.choice(_STATEMENTS)
    if kind < 8:
        return text.replace(line, f"raise {random.choice(_RAISED)}; {line}")
    keyword = line.partition(" ")[0]
    if keyword in ("return", "yield"):
        return text.replace(line, f"{keyword} {random.choice(_VALUES)}")
    return text.replace(line, f"{line}; return {random.choice(_VALUES)}")


def model(place: Place) -> Call:
    """A wrong model file under the commands and functions that take one."""
    import ampsim

    random = place.random
    if random.random() < 0.1:
        at = random.randrange(len(MODEL))
        place.write("model.py", MODEL[:at] + random.choice(("", ")", "\x00", "\t", "\x0c", "'''")))
    else:
        place.write("model.py", wrong_model(place))
    few = ["--instances", "4", "--workers", "2"]
    schedule = random.choice(("sequential", "amp", "pipeline", "1f1b", "pipedream", "amp-budget"))

    def simulate() -> object:
        cluster = ampsim.load_cluster("tflops-1", workers=2)
        return ampsim.simulate(ampsim.load_model("model.py"), cluster, ampsim.Amp(), instances=4)

    drawn = ["gantt", "model.py", *few, "--schedule", schedule, "--out", "chart.json"]
    shortened = ["forecast", "model.py", *few, "--schedule", "amp", "--max-epochs", "1", "--quiet"]
    chosen = random.randrange(20)
    if chosen < 6:
        return Command(["check", "model.py"])
    if chosen < 9:
        return Command(["models", "model.py"])
    if chosen < 13:
        return Command([*drawn, "--mode", random.choice(("numeric", "numeric", "sleep"))])
    if chosen < 14:
        repeats = random.choice(((), ("--repeats", "2")))
        return Command([*shortened, "--jobs", "1", *repeats, "--out", "made"])
    if chosen < 15:
        return Command(
            ["run", "model.py", *few, "--schedule", schedule, "--quiet", "--out", "made"]
        )
    return Function("simulate", simulate, "model.py")
