"""What the pytest plugin does: the fixture `bandwidth`, its thresholds, the session's baseline and summary.

pytest loads `entry` at each start, and with it `plugin`, which import nothing but pytest before they are used.
"""
