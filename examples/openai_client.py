"""OpenAI's client with a running server: python examples/openai_client.py [http://127.0.0.1:8000/v1]

Needs `pip install openai`, and in another terminal `drut serve smollm2-135m-instruct`.
"""

import os
import sys

from openai import OpenAI

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"

client = OpenAI(base_url=URL, api_key=os.environ.get("DRUT_API_KEY", "none"))
model = client.models.list().data[0].id
reply = client.chat.completions.create(model=model, max_tokens=60, seed=1, messages=[
    {"role": "user", "content": "Name three colours."}])
print(reply.choices[0].message.content)

stream = client.chat.completions.create(model=model, max_tokens=60, stream=True, messages=[
    {"role": "user", "content": "Write a sentence about rain."}])
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
