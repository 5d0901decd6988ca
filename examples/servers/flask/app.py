import os
import time

from flask import Flask

app = Flask(__name__)


@app.get("/")
def fast():
    return "generation=%s\n" % os.environ.get("SUPERVISORD_GENERATION")


@app.get("/slow")
def slow():
    time.sleep(0.3)
    return fast()
