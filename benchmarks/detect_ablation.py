"""What each addition to DETR is worth: the same short training with each of them off in turn.

    python -m benchmarks.detect_ablation DATA/bccd --minutes 6

Every variant trains on the train part with the same seed, data order and length, and is scored on the val part; the
test part is not read."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import headway

VARIANTS: dict[str, dict[str, object]] = {
    "all of them": {},
    "without denoising queries": {"denoising": 0},
    "without proposals as anchors": {"proposals": False},
    "without the box prior": {"prior": False},
    "without mosaic": {"mosaic": 0.0},
    "none (anchors that are learned)": {"denoising": 0, "proposals": False, "prior": False, "mosaic": 0.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float)
    length.add_argument("--steps", type=int)
    parser.add_argument("--size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="of a training picture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="variants whose name contains this")
    args = parser.parse_args()
    shared = {} if args.size is None else {"task.height": args.size[0], "task.width": args.size[1]}
    minutes = 6.0 if args.steps is None and args.minutes is None else args.minutes
    print("| variant | steps | AP50 | AP | change of AP50 |\n|---|---|---|---|---|", flush=True)
    whole: float | None = None
    for name, settings in VARIANTS.items():
        if args.only and args.only not in name:
            continue
        with TemporaryDirectory() as folder:
            run = headway.train(
                "detect",
                args.data,
                out=Path(folder) / "run",
                minutes=minutes,
                steps=args.steps,
                seed=args.seed,
                settings=shared | {f"task.{key}": value for key, value in settings.items()},
            )
            scores = headway.evaluate(run.folder)  # on the held-out part: val
        ap50 = scores["ap50"]
        whole = ap50 if whole is None else whole
        change = "" if not settings else f"{ap50 - whole:+.3f}"
        print(f"| {name} | {run.result.steps:,} | {ap50:.3f} | {scores['ap']:.3f} | {change} |", flush=True)


if __name__ == "__main__":
    main()
