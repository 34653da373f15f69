"""The public names of the folder, each with the module that it is imported from at first use."""

from bwprof.analysis.access import AccessPattern as AccessPattern
from bwprof.analysis.bandwidth import BandwidthAnalysis as BandwidthAnalysis
from bwprof.analysis.bandwidth import speed_of_light as speed_of_light
from bwprof.analysis.bandwidth import utilization_table as utilization_table
from bwprof.analysis.bottleneck import bottlenecks as bottlenecks
from bwprof.analysis.bottleneck import strengths as strengths
from bwprof.analysis.gains import improvement_table as improvement_table
from bwprof.analysis.gains import speedup as speedup
from bwprof.analysis.prediction.catalog import catalog as catalog
from bwprof.analysis.prediction.efficiency import efficiency as efficiency
from bwprof.analysis.prediction.predict import predict as predict
from bwprof.analysis.prediction.predict import predict_rows as predict_rows
from bwprof.analysis.rules import checklist as checklist
from bwprof.roofs.limiter import attainable as attainable
from bwprof.roofs.limiter import classify as classify
from bwprof.roofs.limiter import position as position
from bwprof.roofs.limiter import ridge as ridge
from bwprof.roofs.limiter import with_limits as with_limits
