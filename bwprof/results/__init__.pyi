"""The public functions and the modules of the folder."""

from bwprof.results import atomic as atomic
from bwprof.results import csv_file as csv_file
from bwprof.results import exchange as exchange
from bwprof.results import frame as frame
from bwprof.results import json_file as json_file
from bwprof.results import pairs as pairs
from bwprof.results import reader as reader
from bwprof.results import row as row
from bwprof.results import schema as schema
from bwprof.results import writer as writer
from bwprof.results.reader import load as load
from bwprof.results.reader import read_rows as read_rows
from bwprof.results.reader import save as save
