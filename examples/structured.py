"""Output that matches a JSON schema: python examples/structured.py [MODEL]"""

import json
import sys

from drut import LLM, Constraint, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"
CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "population": {"type": "integer", "minimum": 0,
                                                                              "maximum": 99_999_999}},
    "required": ["name", "population"],
    "additionalProperties": False,
}

with LLM(MODEL) as llm:
    question = [{"role": "user", "content": "Describe Paris as JSON with name and population."}]
    (answer,) = llm.chat(question, SamplingParams(max_tokens=200, constraint=Constraint.json_schema(CITY)))
    print(json.dumps(json.loads(answer.text), indent=2))
