"""Waits in each Python program under `stepscope run` until it imports PyTorch.

Python imports this file at its start, because its folder is in PYTHONPATH. Every Python program that the
command starts pays for it, so it imports nothing of stepscope before the program has imported PyTorch.
"""

import os
import sys
import time

IMPORTS = {
    "torch": "stepscope.attach.torch_hooks",
    "transformers.trainer": "stepscope.attach.trainers",
    "lightning.pytorch.trainer.trainer": "stepscope.attach.trainers",
    "pytorch_lightning.trainer.trainer": "stepscope.attach.trainers",
}
"""Modules of a program, and the module of stepscope whose `install` is called when each was imported."""

STARTED_VARIABLE = "_STEPSCOPE_STARTED"
"""Set for processes that stepscope starts for itself."""


class Program:
    """What is known of the program before it imports PyTorch."""

    def __init__(self) -> None:
        self.began_ns = time.monotonic_ns()
        self.is_quiet = os.environ.get("_STEPSCOPE_ATTACH") == "quiet"
        self.trainer = ""
        """The trainer that stepscope has added a callback to; empty if there is none."""
        self.arguments: object = None
        """The newest result of an argument parser."""
        self.config: object = None
        """The configuration that Hydra has composed."""

    def params(self) -> object:
        """The hyper-parameters of the program; None if it has none."""
        from stepscope.attach.script import script_params

        return script_params(self.arguments, self.config)

    def say(self, text: str) -> None:
        """Prints one line on standard error."""
        if not self.is_quiet and sys.stderr is not None:
            try:
                sys.stderr.write("stepscope: " + text + "\n")
                sys.stderr.flush()
            except Exception:  # noqa: BLE001, S110 - a program may have replaced or closed the stream
                pass


class ImportWatcher:
    """Finds no modules itself; calls a function when one of some modules has been imported."""

    def __init__(self, hooks: dict) -> None:  # type: ignore[type-arg]  # of names and functions
        self._hooks = hooks

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Finds a module by the other finders, and prepares the call after its import."""
        if name not in self._hooks:
            return None
        for finder in list(sys.meta_path):
            find = None if isinstance(finder, ImportWatcher) else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._call_after(name, spec.loader)
                return spec
        return None

    def _call_after(self, name: str, loader: object) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: object) -> None:
            execute(module)
            hook = self._hooks.pop(name, None)
            if hook is not None:
                try:  # noqa: SIM105 - contextlib takes longer to load than this file
                    hook(module)
                except Exception:  # noqa: BLE001, S110 - a module of the program's own may have this name
                    pass

        try:
            loader.exec_module = exec_module  # type: ignore[attr-defined]  # only on this loader
        except AttributeError:
            return  # nothing is attached, and the import works


def _installer(where: str, program: Program) -> object:
    def install(module: object) -> None:
        try:
            __import__(where)
            sys.modules[where].install(module, program)
        except ImportError as error:
            if (error.name or "").startswith("stepscope"):
                # Another environment than that of the `stepscope` command.
                program.say(
                    "the steps of this training are not recorded, because stepscope is not installed for "
                    + sys.executable
                )
            else:
                program.say("the steps of this training are not recorded: " + str(error))
        except Exception as error:  # noqa: BLE001 - the program goes on without it
            program.say("the steps of this training are not recorded: " + str(error))

    return install


def _keep_arguments(program: Program) -> object:
    def install(argparse: object) -> None:
        parser = argparse.ArgumentParser  # type: ignore[attr-defined]  # the module
        parse = parser.parse_known_args

        def parse_known_args(self: object, *arguments: object, **options: object) -> object:
            parsed = parse(self, *arguments, **options)
            if isinstance(parsed, tuple) and parsed:  # a parser of the program's own may return anything
                program.arguments = parsed[0]
            return parsed

        parse_known_args.__doc__ = parse.__doc__
        parse_known_args.__wrapped__ = parse  # type: ignore[attr-defined]  # for `inspect.signature`
        parser.parse_known_args = parse_known_args

    return install


def _keep_config(program: Program) -> object:
    def install(module: object) -> None:
        holder = module.HydraConfig  # type: ignore[attr-defined]  # the module hydra.core.hydra_config
        set_config = holder.set_config

        def keep_config(self: object, *arguments: object, **options: object) -> object:
            program.config = arguments[0] if arguments else options.get("cfg")
            return set_config(self, *arguments, **options)

        holder.set_config = keep_config

    return install


def _wait() -> None:
    program = Program()
    hooks = {name: _installer(where, program) for name, where in IMPORTS.items()}
    hooks["argparse"] = _keep_arguments(program)
    hooks["hydra.core.hydra_config"] = _keep_config(program)
    sys.meta_path.insert(0, ImportWatcher(hooks))  # type: ignore[arg-type]  # it has the method that is called


def _import_hidden(folder: str) -> None:
    """Takes the folder of this file off the path, and imports the program's own `sitecustomize`, if any."""
    own = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    try:
        __import__("sitecustomize")  # another one, which this file has hidden
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


def _is_switched_off() -> bool:
    switch = os.environ.get("STEPSCOPE_DISABLED", "").strip().lower()
    return switch in {"1", "true", "yes", "on"} or STARTED_VARIABLE in os.environ


try:
    _import_hidden(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is slow to load
finally:
    if not _is_switched_off():
        _wait()
