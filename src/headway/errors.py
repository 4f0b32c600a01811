"""The errors a user can meet. Each message names the file, line or field, and what to do about it."""


class HeadwayError(Exception):
    """Base of everything Headway raises on purpose."""


class DataError(HeadwayError):
    """A data file or one of its lines cannot be used."""


class ConfigError(HeadwayError):
    """A setting or a model's config is unknown, contradictory or refused."""


class CheckpointError(HeadwayError):
    """A model or state file is damaged, incomplete, hostile or of a refused kind."""


class TrainingError(HeadwayError):
    """Training cannot start or go on."""


class InputError(HeadwayError):
    """An input to a model cannot be used."""
