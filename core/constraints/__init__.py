"""Why nodes do not take pods, besides cards and resources: one file for each constraint, all listed in `every`."""
