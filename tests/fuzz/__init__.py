"""What nobody meant, put into every door of the program: each input ends in a result or in one clear line.

    material   real files and small samples   }                        }  judge     one input, within limits of time and
    mutations  what is done to them           }  doors: one input ---> }            memory, and what is wrong with its end
    grammars   files and commands made up     }                        }  __main__  a hundred thousand of them, in processes

`tests/test_fuzz.py` makes some hundred of them in every run of the tests. The long mode is a command of its own:

    python -m tests.fuzz --inputs 100000

An input is its door and its number: the same seed makes the same input, on any machine that has the same real files
(``PAGEDSIM_SHARED``; without them there are the samples).
"""

import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[1])
if TESTS not in sys.path:                              # as pytest has it
    sys.path.insert(0, TESTS)
