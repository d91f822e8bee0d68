"""One question: which way of training is soonest at the target, and how sure is that?"""

from ampsim.forecasting.forecast import Forecast, forecast, stream
from ampsim.runs.run import Run

__all__ = ["Forecast", "Run", "forecast", "stream"]
