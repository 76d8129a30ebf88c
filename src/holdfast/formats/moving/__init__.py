"""From the five systems' directories into ordinary runs, and back."""

from holdfast.formats.moving.driver import Imported, export_run, import_dir

__all__ = ["Imported", "export_run", "import_dir"]
