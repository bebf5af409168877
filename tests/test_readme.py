"""What the README promises, run."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_runs_and_gives_the_shape_it_says():
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    scope: dict[str, object] = {}
    exec(example, scope)
    assert eval("tuple(net(torch.randn(1, 4, 16, 16, 16)).shape)", scope) == (1, 60, 8, 8, 8)


def test_the_commands_it_opens_with_are_targets_of_the_makefile():
    commands = re.findall(r"^make (\w+)", README.read_text(), re.MULTILINE)
    assert commands[:2] == ["demo", "test"]
    makefile = (README.parent / "Makefile").read_text()
    assert all(re.search(rf"^{command}:", makefile, re.MULTILINE) for command in commands)
