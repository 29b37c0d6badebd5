from simulator.api import run as run
from simulator.errors import InputErrors as InputErrors
from simulator.results.load import load_results as load_results
from simulator.results.result import Result as Result
from simulator.study.predict import predict as predict
from simulator.study.studies import load_study as load_study
from simulator.study.studies import sweep as sweep

__version__: str
API_VERSION: int
